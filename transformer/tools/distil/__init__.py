"""Distillation: teachers in the loss."""
