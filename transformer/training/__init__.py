"""One update: mesh, optimizer and step, compiled for the devices and their memory."""
