"""The encoder-decoder Transformer of "Attention Is All You Need", in JAX.

`load` gives a trained run for use in Python; docs/python.md has what it can do. README.md has the
map of the rooms; each imports only from itself and from the rooms before it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from transformer.errors import UserError

__all__ = ['TrainedRun', 'UserError', 'load']

if TYPE_CHECKING:
  from transformer.trained_run import TrainedRun, load
else:

  def __getattr__(name: str) -> Any:
    if name not in __all__:
      raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    # It is imported at its first use, since JAX comes with it.
    return getattr(importlib.import_module('transformer.trained_run'), name)
