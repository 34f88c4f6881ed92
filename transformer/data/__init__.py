"""Text in, batches of tokens out. Knows text and integers, and no model."""
