"""The encoder-decoder Transformer of "Attention Is All You Need", in JAX.

`load` gives a trained run for use in Python; docs/python.md has what it can do. README.md has the
map of the rooms; each imports only from itself and from the rooms before it.
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
