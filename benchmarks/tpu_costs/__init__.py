"""The cost of an update on a slice of TPUs, from their compiler."""
