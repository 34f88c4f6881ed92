"""The cost of a training step on a TPU slice, estimated by the TPU compiler."""
