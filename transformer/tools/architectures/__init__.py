"""Architectures for `model.module`, one file each; described in docs/architectures.md."""
