"""The encoder-decoder Transformer of "Attention Is All You Need", in JAX.

Rooms, in reading order: `ops` (pure functions on arrays), `model` (thin Flax
modules over them), `data` (text in, token batches out), `training` and
`inference`. `config.py` is the door through which every setting comes in.
"""
