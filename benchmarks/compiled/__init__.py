"""Shared by the estimates for TPUs and GPUs: a compiled training step, and its program's text."""
