"""Pure functions on arrays: attention, masks, positions, losses, dropout, search."""
