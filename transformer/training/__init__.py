"""Optimizer, step, mesh, checkpoints, loop and reporting."""
