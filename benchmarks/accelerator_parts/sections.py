"""The sections that `benchmarks/accelerator.py` measures, the most important first."""

from typing import Any, NamedTuple


class Section(NamedTuple):
  """A measurement in a process of its own.

  Attributes:
    name: its name in the JSON file.
    module: the module of `accelerator_parts` with the function `measure`, which takes
      `arguments` and yields rows, which are dicts of JSON values.
    arguments: JSON values by name.
    seconds: its time, estimated generously. It begins only if this much is left, and is killed
      after twice as long.
  """

  name: str
  module: str
  arguments: dict[str, Any]
  seconds: int


# Rows and their length, source and target alike, at 32 + 32 tokens a sentence pair.
_SHAPES = {
    'base': [[64, 256], [512, 128], [256, 256], [128, 512], [512, 256]],
    'big': [[96, 256], [256, 256], [128, 512]],
    'toy': [[6, 32], [3, 64]],
}
_TOY_SECONDS = 300  # They take 10 to 30 seconds on a machine with nothing else to do.


def sections(size: str) -> list[Section]:
  """Returns what to measure at `full` size, or at `toy` size in a minute or two on a CPU."""
  if size == 'toy':
    return [
        Section('attention', 'attention', {'rows': 2, 'length': 40, 'heads': 2, 'timed_rows': 2},
                _TOY_SECONDS),
        *_updates('toy', _TOY_SECONDS, _TOY_SECONDS, compiled=False),
        _reproducible('toy', _TOY_SECONDS),
        Section('searches', 'searches', {'model': 'toy', 'length': 8, 'batches': [2, 3]},
                _TOY_SECONDS),
        Section('data', 'data', {'model': 'toy', 'tokens': 1024, 'seconds': 3, 'pairs': 400},
                _TOY_SECONDS),
    ]
  return [
      Section('attention', 'attention', {'rows': 4, 'length': 256, 'heads': 8, 'timed_rows': 256},
              90),
      *_updates('base', 150, 180),
      Section('data', 'data', {'model': 'base', 'tokens': 65_536, 'seconds': 60, 'pairs': 20_000},
              150),
      Section('searches', 'searches', {'model': 'base', 'length': 32,
                                       'batches': [16, 64, 256, 1024]}, 120),
      _reproducible('base', 75),
      *_updates('big', 150, 180),
      _reproducible('big', 90),
  ]


def _updates(model: str, ours: int, theirs: int, compiled: bool = True) -> list[Section]:
  """Returns the sections of a model's updates.

  Args:
    model: the model.
    ours: the estimated time of this project.
    theirs: the estimated time of PyTorch.
    compiled: whether PyTorch compiles the model, which takes a CPU minutes.
  """
  shapes = _SHAPES[model]
  return [Section(f'updates, {model}', 'updates', {'model': model, 'shapes': shapes}, ours),
          Section(f'updates, {model}, PyTorch', 'pytorch',
                  {'model': model, 'shapes': shapes, 'compiled': compiled}, theirs)]


def _reproducible(model: str, seconds: int) -> Section:
  """Returns the section of `train.reproducible` at the second shape of a model."""
  return Section(f'updates, {model}, reproducible', 'updates',
                 {'model': model, 'shapes': _SHAPES[model][1:2], 'reproducible': True}, seconds)
