"""Reads the collectives in the text of a program that XLA has compiled for the CPU."""

import math
import re

import numpy as np

_TYPES = {'f32': np.float32, 's32': np.int32, 'u32': np.uint32, 'pred': np.bool_}
_COLLECTIVE = re.compile(
  r' = (\(.*?\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all|'
  r'collective-permute)\('
)


def collectives_of(program):
  """Returns the kind of every collective of a program, and the bytes of its result.

  One in a loop is there once.
  """
  return [
    (
      kind,
      sum(
        math.prod(int(size) for size in sizes.split(',') if size)
        * np.dtype(_TYPES[type_]).itemsize
        for type_, sizes in re.findall(r'(\w+)\[([\d,]*)\]', shape)
      ),
    )
    for shape, kind in _COLLECTIVE.findall(program.as_text())
  ]
