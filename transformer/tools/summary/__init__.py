"""A summary of a job before submission: sizes, memory, time, disk and questionable settings."""
