"""A job before it is queued: its sizes, memory, time, disk space and doubtful settings."""
