"""The process: its start, its end, signals, and work with other processes."""
