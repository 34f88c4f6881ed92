"""A page with the attention weights of every head."""
