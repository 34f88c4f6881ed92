"""The encoder-decoder Transformer of "Attention Is All You Need", in JAX.

`load` returns a trained run for use in Python, as docs/python.md shows. README.md lists the
packages; each imports only itself and earlier ones. `system/` and the modules directly below
`transformer/`, except `trained_run.py`, may be imported anywhere.
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
    # Imported on first use, since it imports JAX.
    return getattr(importlib.import_module('transformer.trained_run'), name)
