"""The NVIDIA GPUs of a machine, found without JAX, which takes seconds to start."""

import itertools
from collections.abc import Mapping
from pathlib import Path

_GPUS = Path('/proc/driver/nvidia/gpus')


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
  """Returns the GPUs for a process with this environment, by their CUDA_VISIBLE_DEVICES names."""
  if environment.get('JAX_PLATFORMS') == 'cpu':
    return []
  if 'CUDA_VISIBLE_DEVICES' in environment:
    return named_gpus(environment)
  return [str(number) for number, _ in enumerate(_GPUS.iterdir())] if _GPUS.is_dir() else []


def named_gpus(environment: Mapping[str, str]) -> list[str]:
  """Returns the names in CUDA_VISIBLE_DEVICES; as in CUDA, those from a negative number on hide."""
  names = [each.strip() for each in environment.get('CUDA_VISIBLE_DEVICES', '').split(',')]
  return [*itertools.takewhile(lambda name: not name.startswith('-'), filter(None, names))]
