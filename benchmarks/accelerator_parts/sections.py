"""The sections that `benchmarks/accelerator.py` measures, the most important first."""

from importlib import util
from typing import Any, NamedTuple


class Section(NamedTuple):
  """A measurement in a separate process.

  Attributes:
    name: its name in the JSON file.
    module: the module of `accelerator_parts` with the function `measure`, which takes
      `arguments` and yields rows, which are dicts of JSON values.
    arguments: JSON values by name.
    seconds: a generous estimate of its time. It starts only if this much time is left, and is
      killed after twice that time.
  """

  name: str
  module: str
  arguments: dict[str, Any]
  seconds: int


# Rows and their length, equal for source and target, with 32 + 32 tokens per sentence pair.
_SHAPES = {
  'base': [[256, 256], [512, 256], [512, 128], [128, 512]],
  'big': [[256, 256], [128, 512], [96, 256]],
  'toy': [[6, 32], [3, 64]],
}
_TOY_SECONDS = 300  # They take 10 to 30 seconds on an idle machine.


def sections(size: str) -> list[Section]:
  """Returns the sections at `full` size, or at `toy` size, which takes minutes on a CPU."""
  if size == 'toy':
    return [
      Section(
        'attention',
        'attention',
        {'rows': 2, 'length': 40, 'heads': 2, 'timed_rows': 2},
        _TOY_SECONDS,
      ),
      Section(
        'kernels',
        'kernels',
        {'rows': 4, 'length': 40, 'heads': [2, 4], 'sentence': 8},
        _TOY_SECONDS,
      ),
      _training_steps('toy', _TOY_SECONDS),
      *_by_kernel('toy', _TOY_SECONDS),
      _of_pytorch('toy', _TOY_SECONDS, compiled=False),
      _reproducible('toy', _TOY_SECONDS),
      Section(
        'searches',
        'searches',
        {'model': 'toy', 'length': 8, 'batches': [2, 3]},
        _TOY_SECONDS,
      ),
      Section(
        'searches, PyTorch',
        'huggingface',
        {'model': 'toy', 'length': 8, 'batches': [2, 3]},
        _TOY_SECONDS,
      ),
      Section(
        'data',
        'data',
        {'model': 'toy', 'tokens': 1024, 'seconds': 3, 'pairs': 400},
        _TOY_SECONDS,
      ),
    ]
  return [
    Section(
      'attention',
      'attention',
      {'rows': 4, 'length': 256, 'heads': 8, 'timed_rows': 256},
      90,
    ),
    _training_steps('base', 120),
    Section(
      'kernels',
      'kernels',
      {'rows': 256, 'length': 256, 'heads': [8, 16], 'sentence': 28},
      90,
    ),
    *_by_kernel('base', 60),
    _of_pytorch('base', 120),
    _training_steps('big', 120),
    *_by_kernel('big', 60),
    _of_pytorch('big', 120),
    Section(
      'searches',
      'searches',
      {'model': 'base', 'length': 32, 'batches': [16, 64, 512]},
      120,
    ),
    Section(
      'searches, PyTorch',
      'huggingface',
      {'model': 'base', 'length': 32, 'batches': [64, 512]},
      60,
    ),
    Section(
      'data',
      'data',
      {'model': 'base', 'tokens': 65_536, 'seconds': 60, 'pairs': 20_000},
      150,
    ),
    _reproducible('base', 75),
    _reproducible('big', 90),
  ]


def _training_steps(model: str, seconds: int) -> Section:
  """Returns the section of a model's training steps."""
  return Section(
    f'training steps, {model}',
    'training_steps',
    {'model': model, 'shapes': _SHAPES[model]},
    seconds,
  )


def _by_kernel(model: str, seconds: int) -> list[Section]:
  """Returns the sections of other attention kernels, at the first shape of a model."""
  kernels = ['cuDNN without a mask', 'reference']
  if util.find_spec('tokamax') is not None:
    kernels.append('Mosaic in tokamax')
  return [
    Section(
      f'training steps, {model}, {kernel}',
      'training_steps',
      {'model': model, 'shapes': _SHAPES[model][:1], 'kernel': kernel},
      seconds,
    )
    for kernel in kernels
  ]


def _of_pytorch(model: str, seconds: int, compiled: bool = True) -> Section:
  """Returns the section of PyTorch, which may compile the model; on a CPU that takes minutes."""
  return Section(
    f'training steps, {model}, PyTorch',
    'pytorch',
    {'model': model, 'shapes': _SHAPES[model][:2], 'compiled': compiled},
    seconds,
  )


def _reproducible(model: str, seconds: int) -> Section:
  """Returns the section of `train.reproducible` at the first shape of a model."""
  return Section(
    f'training steps, {model}, reproducible',
    'training_steps',
    {'model': model, 'shapes': _SHAPES[model][:1], 'reproducible': True},
    seconds,
  )
