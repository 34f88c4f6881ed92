"""A summary of a job before submission: sizes, memory, time, disk space and doubtful settings."""
