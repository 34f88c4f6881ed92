"""Pure functions on arrays: attention, masks, positions, dropout, losses, search, sampling."""
