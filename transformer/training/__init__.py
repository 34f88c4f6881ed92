"""The training step: objective, optimizer, mesh and step, compiled to fit in device memory."""
