"""Optimizer, step, mesh, checkpoints, loop, reporting and tracing."""
