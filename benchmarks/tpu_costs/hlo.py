"""Reads the collectives and the estimated cycles of a compiled program from its text.

The text is XLA's HLO after optimisation, `compiled.as_text()`. It is the program of one device;
all devices run the same.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

# The collectives. One whose name ends in `-start` runs while the device computes.
KINDS = (
  'all-reduce',
  'all-gather',
  'reduce-scatter',
  'all-to-all',
  'collective-permute',
)
_COMPUTATION = re.compile(r'(ENTRY )?%?([\w.\-]+) \(.*\{$')
_INSTRUCTION = re.compile(r'\s+(?:ROOT )?%?[\w.\-]+ = (\(.*?\)|\S+) ([\w\-]+)\((.*)')
_ARRAY = re.compile(r'\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]')
_CALLED = re.compile(
  r'(?:calls|to_apply|body|condition|true_computation|false_computation)='
  r'%?([\w.\-]+)'
)
_BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_LIMIT = re.compile(r's32\[\]\S* constant\((\d+)\)')


class Collective(NamedTuple):
  """A communication among devices."""

  kind: str  # One of `KINDS`.
  count: int  # The times that a run of the program executes it.
  size: int  # Bytes each time: of a reduce-scatter's input, and of every other kind's result.
  group: int  # The devices that communicate with each other.

  @property
  def sent(self) -> float:
    """The bytes that a device sends in a run by the ring algorithm, which sends the fewest."""
    share = 1.0 if self.kind == 'collective-permute' else (self.group - 1) / self.group
    return self.count * self.size * share * (2 if self.kind == 'all-reduce' else 1)


def read(text: str, devices: int) -> tuple[list[Collective], int]:
  """Returns a program's collectives in the text's order, and a device's cycles without them.

  The cycles are the compiler's estimate, 0 if the text has none.
  """
  computations, entry = _computations(text)
  collectives, chains, cycles = [], set(), 0
  for name, times in _visits(entry, computations):
    for shape, operation, rest in computations[name]:
      if estimate := _CYCLES.search(rest):
        cycles += times * int(estimate[1])
      kind = operation.removesuffix('-start')
      if kind not in KINDS:
        continue
      # A collective that runs during several fusions appears in each of them, with one chain id.
      if chain := re.search(r'frontend_attributes=\{[^}]*chain_id="(\d+)"', rest):
        key = chain[1], re.search(r'channel_id=(\d+)', rest)[0]
        if key in chains:
          continue
        chains.add(key)
      group = _group(rest, devices)
      collectives.append(
        Collective(kind, times, _size(kind, operation, shape, group), group)
      )
  return collectives, cycles


def _computations(text: str):
  """Returns each computation's instructions (shape, operation, rest of line), and the entry."""
  computations, entry, name = {}, None, None
  for line in text.splitlines():
    if head := _COMPUTATION.match(line):
      name = head[2]
      computations[name] = []
      entry = name if head[1] else entry
    elif instruction := _INSTRUCTION.match(line):
      computations[name].append(instruction.groups())
  return computations, entry


def _visits(name: str, computations, times: int = 1) -> Iterator[tuple[str, int]]:
  """Yields a computation and all that it calls, with the number of times that they run."""
  yield name, times
  for _, operation, rest in computations[name]:
    turns = _trips(rest, computations) if operation == 'while' else 1
    branches = ','.join(_BRANCHES.findall(rest))
    for inner in _CALLED.findall(rest) + re.findall(r'[\w.\-]+', branches):
      yield from _visits(inner, computations, times * turns)


def _trips(rest: str, computations) -> int:
  """Returns the turns of a loop that counts up from 0, as `scan` does; 1 if unknown."""
  if known := _TRIPS.search(rest):
    return int(known[1])
  pending, lines = [re.search(r'condition=%?([\w.\-]+)', rest)[1]], []
  while pending:
    for shape, operation, more in computations[pending.pop()]:
      lines.append(f'{shape} {operation}({more}')
      pending += _CALLED.findall(more)
  limits = {int(limit[1]) for limit in map(_LIMIT.match, lines) if limit}
  less = any('direction=LT' in line for line in lines)
  return limits.pop() if less and len(limits) == 1 else 1


def _group(rest: str, devices: int) -> int:
  """Returns the number of devices in a group of `replica_groups`, which has three notations."""
  if mesh := re.search(r'replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}', rest):
    sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh[1])}
    return math.prod(sizes[axis] for axis in re.findall(r"'(\w+)'", mesh[2]))
  if table := re.search(r'replica_groups=\[\d+,(\d+)\]', rest):
    return int(table[1])
  listed = re.search(r'replica_groups=\{\{([\d,]+)', rest)
  return len(listed[1].split(',')) if listed else devices


def _size(kind: str, operation: str, shape: str, group: int) -> int:
  """Returns the bytes of a shape's arrays; operands and counters of a `-start` do not count."""
  sizes = [
    math.prod(int(dim) for dim in dims.split(',') if dim)
    * (max(int(bits), 8) // 8 if bits else 1)
    for name, bits, dims in _ARRAY.findall(shape)
    if operation == kind or (name, dims) != ('u32', '')
  ]  # Counters of a `-start`.
  if operation != kind and kind != 'all-reduce':
    sizes = sizes[len(sizes) // 2 :]
  return sum(sizes) * (group if kind == 'reduce-scatter' else 1)
