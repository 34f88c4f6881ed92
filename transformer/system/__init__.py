"""The process: start-up, exit, signals, and communication with other processes."""
