"""One update: objective, optimizer, mesh and step, compiled for the devices and their memory."""
