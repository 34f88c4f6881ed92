"""A page of what every attention head looks at."""
