"""The encoder-decoder Transformer of "Attention Is All You Need", in JAX.

The rooms, in reading order; each imports only from itself and from the rooms before it:

- `ops`: pure functions on arrays.
- `model`: thin Flax modules over them.
- `data`: text in, batches of tokens out.
- `training`: one update, compiled for the devices.
- `runs`: a run on disk.
- `decoding`: token ids to translations.
- `evaluation`: scores of translations.
- `experiment`: from a config to the last checkpoint.
- `commands`: what the commands share.
- `tools`: programs on the rooms above; `python -m transformer.tools.NAME` runs one.

All rooms may import `config` (all settings), `settings` (their checks), `own_code` (what a setting
names), `errors`, `files` and `system` (the process).
"""
