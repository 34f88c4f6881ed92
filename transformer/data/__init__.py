"""Text in, batches of tokens out. This room knows text and integers, and no model."""
