"""Text by teachers, and a student that is trained on it."""
