"""The cost of an update on GPUs, from their compiler."""
