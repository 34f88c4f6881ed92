"""Text in, token batches out. This package handles text and integers, not models."""
