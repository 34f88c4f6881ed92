"""The NVIDIA GPUs that CUDA_VISIBLE_DEVICES names."""

import itertools
from collections.abc import Mapping


def named_gpus(environment: Mapping[str, str]) -> list[str]:
  """Returns the names in CUDA_VISIBLE_DEVICES; as in CUDA, those from a negative number on hide."""
  names = [each.strip() for each in environment.get('CUDA_VISIBLE_DEVICES', '').split(',')]
  return [*itertools.takewhile(lambda name: not name.startswith('-'), filter(None, names))]
