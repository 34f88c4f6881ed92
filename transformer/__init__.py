"""The encoder-decoder Transformer of "Attention Is All You Need", in JAX.

The rooms, in reading order; each imports only from itself and from the rooms before it:

- `ops`: pure functions on arrays.
- `model`: thin Flax modules over them.
- `data`: text in, batches of tokens out.
- `training`: one update, compiled for the devices.
- `runs`: a run on disk.
- `inference`: token ids to translations.
- `evaluation`: scores of translations.
- `export`: a run in the formats of other tools.
- `experiment`: from a config to the last checkpoint.
- `commands`: what `python -m transformer.commands.NAME` runs.

All rooms may import `config` (all settings), `errors`, `files` and `system` (the process).
"""
