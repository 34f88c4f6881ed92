"""The same work in other people's systems."""
