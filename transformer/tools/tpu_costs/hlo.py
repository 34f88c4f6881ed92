"""Reads the collectives and the estimated cycles of a compiled program from its text.

The text is XLA's HLO after optimisation, `compiled.as_text()`. It is the program of one device;
all devices run the same.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

# The collectives. One whose name ends in `-start` runs while the device computes.
KINDS = ('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all', 'collective-permute')
_COMPUTATION = re.compile(r'(ENTRY )?%?([\w.\-]+) \(.*\{$')
_INSTRUCTION = re.compile(r'\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)')
_ARRAY = re.compile(r'\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]')
_CALLED = re.compile(r'(?:calls|to_apply|body|condition|true_computation|false_computation)='
                     r'%?([\w.\-]+)')
_BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_LIMIT = re.compile(r's32\[\]\S* constant\((\d+)\)')


class Collective(NamedTuple):
  """A communication among devices.

  Attributes:
    kind: one of `KINDS`.
    count: the number of times that a run of the program executes it.
    size: the bytes of the whole array on a device each time: the input of a reduce-scatter, and
      the result of every other kind.
    group: the number of devices that communicate with each other.
    shape: the shape of the result, as in the text.
    source: JAX's name of the operation of the model that needs this communication.
  """

  kind: str
  count: int
  size: int
  group: int
  shape: str
  source: str

  @property
  def sent(self) -> float:
    """The bytes that a device sends in a run by the ring algorithm, which sends the fewest."""
    share = 1.0 if self.kind == 'collective-permute' else (self.group - 1) / self.group
    return self.count * self.size * share * (2 if self.kind == 'all-reduce' else 1)


class Program(NamedTuple):
  """The contents of a program.

  Attributes:
    collectives: the collectives in the text's order.
    cycles: the compiler's estimate for a device, for all turns of all loops, without
      collectives; 0 if the text has no estimates.
    unknown_loops: the number of loops whose turns the text does not give. Their bodies are counted
      once.
  """

  collectives: list[Collective]
  cycles: int
  unknown_loops: int


def read(text: str, devices: int) -> Program:
  """Reads the text of a compiled program.

  Args:
    text: `compiled.as_text()`.
    devices: the number of devices that run it.
  """
  computations, entry = _computations(text)
  collectives, chains = [], set()
  cycles = unknown = 0
  for name, times in _visits(entry, computations):
    for instruction, shape, operation, rest in computations[name]:
      if found := _CYCLES.search(rest):
        cycles += times * int(found[1])
      if operation == 'while' and _trips(rest, computations) is None:
        unknown += 1
      kind = operation.removesuffix('-start')
      if kind not in KINDS:
        continue
      # A collective that runs during several fusions appears in each of them, with one chain id.
      chain = re.search(r'frontend_attributes=\{[^}]*chain_id="(\d+)"', rest)
      if chain and (key := (chain[1], re.search(r'channel_id=(\d+)', rest)[0])) in chains:
        continue
      if chain:
        chains.add(key)
      group = _group(rest, devices)
      source = re.search(r'op_name="([^"]*)"', rest)
      collectives.append(Collective(
          kind, times, _size(kind, operation, shape, group), group,
          re.sub(r'\{[^}]*\}|/\*.*?\*/', '', shape), source[1] if source else instruction))
  return Program(collectives, cycles, unknown)


def _computations(text: str):
  """Returns the instructions of each computation by its name, and the name of the entry.

  An instruction is its name, shape, operation and the rest of its line.
  """
  computations, entry, name = {}, None, None
  for line in text.splitlines():
    if line and not line[0].isspace():
      if found := _COMPUTATION.match(line):
        name = found[2]
        computations[name] = []
        entry = name if found[1] else entry
    elif found := _INSTRUCTION.match(line):
      computations[name].append(found.groups())
  return computations, entry


def _visits(name: str, computations, times: int = 1) -> Iterator[tuple[str, int]]:
  """Yields a computation and all that it calls, each with the number of times that it runs."""
  yield name, times
  for _, _, operation, rest in computations[name]:
    turns = (_trips(rest, computations) or 1) if operation == 'while' else 1
    branches = _BRANCHES.search(rest)
    called = _CALLED.findall(rest) + (
        [each.strip(' %') for each in branches[1].split(',')] if branches else [])
    for each in called:
      yield from _visits(each, computations, times * turns)


def _trips(rest: str, computations) -> int | None:
  """Returns the turns of a loop that counts up from 0, as `scan` does; None if unknown."""
  if found := _TRIPS.search(rest):
    return int(found[1])
  condition = re.search(r'condition=%?([\w.\-]+)', rest)[1]
  pending, lines = [condition], []
  while pending:
    for _, shape, operation, more in computations[pending.pop()]:
      lines.append(f'{shape} {operation}({more}')
      pending += _CALLED.findall(more)
  limits = {int(found[1]) for found in map(_LIMIT.match, lines) if found}
  less = any('direction=LT' in line for line in lines)
  return limits.pop() if less and len(limits) == 1 else None


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
  """Returns the bytes of the whole array, or of all arrays in a tuple.

  The tuple of a `-start` may also have operands and counters, which do not count.
  """
  sizes = [math.prod(int(each) for each in dims.split(',') if each)
           * (max(int(bits), 8) // 8 if bits else 1)
           for name, bits, dims in _ARRAY.findall(shape)
           if operation == kind or (name, dims) != ('u32', '')]  # Counters of a `-start`.
  if operation != kind and kind != 'all-reduce':
    sizes = sizes[len(sizes) // 2:]
  return sum(sizes) * (group if kind == 'reduce-scatter' else 1)
