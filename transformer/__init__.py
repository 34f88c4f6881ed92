"""The encoder-decoder Transformer of "Attention Is All You Need", in JAX.

In Python, `load` gives a trained run; docs/python.md has what it can do. The rooms, in reading
order; each imports only from itself and from the rooms before it:

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

import importlib
from typing import TYPE_CHECKING, Any

from transformer.errors import UserError

__all__ = ['TrainedRun', 'UserError', 'load']

# What is imported at its first use, since JAX comes with it. A tool may be absent.
_MODULES = {'TrainedRun': 'decoding.trained_run', 'load': 'decoding.trained_run',
            'load_huggingface': 'tools.convert.huggingface_reading'}

if TYPE_CHECKING:
  from os import PathLike

  from transformer.decoding.trained_run import TrainedRun, load

  def load_huggingface(folder: str | PathLike[str]) -> TrainedRun: ...
else:
  def __getattr__(name: str) -> Any:
    if name not in _MODULES:
      raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    try:
      return getattr(importlib.import_module(f'{__name__}.{_MODULES[name]}'), name)
    except ModuleNotFoundError as error:
      raise UserError(f'transformer.{name} needs a module that is not installed: '
                      f'{error}') from error
