"""The cost of a training step on GPUs, estimated by their compiler."""
