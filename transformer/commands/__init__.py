"""What `python -m transformer.commands.NAME` runs."""
