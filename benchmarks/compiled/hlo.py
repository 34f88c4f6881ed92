"""Reads a compiled program from its text, XLA's HLO after optimization (`compiled.as_text()`).

The text is the program of one device; all devices run the same program.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# The collectives. If a collective's name ends in `-start`, it is asynchronous.
KINDS = (
  'all-reduce',
  'all-gather',
  'reduce-scatter',
  'all-to-all',
  'collective-permute',
)
_COMPUTATION = re.compile(r'(ENTRY )?%?([\w.\-]+) \(.*\{$')
_INSTRUCTION = re.compile(r'\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)')
_ARRAY = re.compile(r'\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]')
_CALLED = re.compile(
  r'(?:calls|to_apply|body|condition|true_computation|false_computation)='
  r'%?([\w.\-]+)'
)
_BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_LIMIT = re.compile(r's32\[\]\S* constant\((\d+)\)')
_MESH_GROUPS = re.compile(r'replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}')
_IOTA_GROUPS = re.compile(
  r'replica_groups=\[\d+,(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?'
)
_LISTED_GROUPS = re.compile(r'replica_groups=\{\{([\d,]+)')


class Instruction(NamedTuple):
  """A line of a computation.

  Attributes:
    name: its name in other lines of the computation.
    shape: the type of its result, such as `f32[8]{0}`, or a tuple of types.
    opcode: such as `fusion` or `all-reduce-start`.
    rest: operands and attributes.
  """

  name: str
  shape: str
  opcode: str
  rest: str

  @property
  def operands(self) -> list[str]:
    """The names of its operands."""
    arguments = self.rest.split('), ')[0]
    return re.findall(r'%([\w.\-]+)', arguments)

  @property
  def callees(self) -> list[str]:
    """The computations that it calls, including all branches."""
    branches = ','.join(_BRANCHES.findall(self.rest))
    return _CALLED.findall(self.rest) + re.findall(r'[\w.\-]+', branches)


class Program(NamedTuple):
  """The instructions of each computation, in the order of the text, and the entry's name."""

  computations: dict[str, list[Instruction]]
  entry: str

  def trips(self, loop: Instruction) -> int:
    """Returns the iterations of a loop that counts up from 0, as `scan` does; 1 if unknown."""
    if known := _TRIPS.search(loop.rest):
      return int(known[1])
    pending = [re.search(r'condition=%?([\w.\-]+)', loop.rest)[1]]
    lines = []
    while pending:
      for instruction in self.computations[pending.pop()]:
        lines.append(f'{instruction.shape} {instruction.opcode}({instruction.rest}')
        pending += instruction.callees
    limits = {int(limit[1]) for limit in map(_LIMIT.match, lines) if limit}
    less = any('direction=LT' in line for line in lines)
    return limits.pop() if less and len(limits) == 1 else 1

  def visits(self, name: str = '', times: int = 1) -> Iterator[tuple[Instruction, int]]:
    """Yields each instruction of a computation and of its callees, and its number of runs."""
    for instruction in self.computations[name or self.entry]:
      yield instruction, times
      turns = self.trips(instruction) if instruction.opcode == 'while' else 1
      for callee in instruction.callees:
        yield from self.visits(callee, times * turns)


class Collective(NamedTuple):
  """A communication among devices.

  Attributes:
    kind: one of `KINDS`.
    count: the number of executions in a run of the program.
    size: bytes per execution: of the input of a reduce-scatter, of the result of other kinds.
    group: indices in the mesh of devices that communicate with each other.
  """

  kind: str
  count: int
  size: int
  group: tuple[int, ...]

  @property
  def sent(self) -> float:
    """The bytes that a device sends per run with the ring algorithm, which sends the fewest."""
    devices = len(self.group)
    share = 1.0 if self.kind == 'collective-permute' else (devices - 1) / devices
    return self.count * self.size * share * (2 if self.kind == 'all-reduce' else 1)


def parse(text: str) -> Program:
  """Returns the program that a text describes."""
  computations = {}
  entry = ''
  current = []
  for line in text.splitlines():
    if head := _COMPUTATION.match(line):
      current = computations[head[2]] = []
      entry = head[2] if head[1] else entry
    elif instruction := _INSTRUCTION.match(line):
      current.append(Instruction(*instruction.groups()))
  return Program(computations, entry)


def collectives(program: Program, devices: int) -> list[Collective]:
  """Returns the collectives of a program for `devices`, in the text's order."""
  found = []
  chains = set()
  for instruction, times in program.visits():
    kind = instruction.opcode.removesuffix('-start')
    if kind not in KINDS:
      continue
    # A collective that runs during several fusions appears in each of them, with one chain id.
    chain = re.search(r'frontend_attributes=\{[^}]*chain_id="(\d+)"', instruction.rest)
    if chain:
      channel = re.search(r'channel_id=(\d+)', instruction.rest)[0]
      if (chain[1], channel) in chains:
        continue
      chains.add((chain[1], channel))
    group = _group(instruction.rest, devices)
    found.append(Collective(kind, times, _size(kind, instruction, len(group)), group))
  return found


def cycles(program: Program) -> int:
  """Returns a TPU compiler's estimate of a device's cycles; 0 if the text has none."""
  total = 0
  for instruction, times in program.visits():
    if estimate := _CYCLES.search(instruction.rest):
      total += times * int(estimate[1])
  return total


def bytes_of(shape: str) -> int:
  """Returns the bytes of a type's arrays."""
  return sum(_sizes(shape))


def dimensions(shape: str) -> list[int]:
  """Returns the dimensions of a type's first array."""
  return _numbers(_ARRAY.search(shape)[3])


def _sizes(shape: str) -> list[int]:
  sizes = []
  for _, bits, dims in _ARRAY.findall(shape):
    element = max(int(bits), 8) // 8 if bits else 1
    sizes.append(element * math.prod(_numbers(dims)))
  return sizes


def _numbers(text: str) -> list[int]:
  return [int(number) for number in text.split(',') if number]


def _group(rest: str, devices: int) -> tuple[int, ...]:
  """Returns the first group of `replica_groups`, which has three notations."""
  if mesh := _MESH_GROUPS.search(rest):
    sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh[1])}
    chosen = re.findall(r"'(\w+)'", mesh[2])
    numbers = np.arange(math.prod(sizes.values())).reshape(list(sizes.values()))
    # The first group has index 0 on each axis that is not named.
    first = numbers[tuple(slice(None) if axis in chosen else 0 for axis in sizes)]
    return tuple(first.flatten().tolist())
  if iota := _IOTA_GROUPS.search(rest):
    size = int(iota[1])
    shape = _numbers(iota[2])
    order = _numbers(iota[3]) if iota[3] else range(len(shape))
    numbers = np.arange(math.prod(shape)).reshape(shape).transpose(order)
    return tuple(numbers.flatten()[:size].tolist())
  listed = _LISTED_GROUPS.search(rest)
  return tuple(_numbers(listed[1])) if listed else tuple(range(devices))


def _size(kind: str, instruction: Instruction, group: int) -> int:
  """Returns the bytes of a result, without the operands and counters of a `-start`."""
  shape = instruction.shape
  if instruction.opcode == kind:
    sizes = _sizes(shape)
  else:
    sizes = _sizes(re.sub(r'\bu32\[\]', '', shape))  # Without counters.
    is_nested = shape.startswith('((')
    if is_nested or kind != 'all-reduce':
      sizes = sizes[len(sizes) // 2 :]
  return sum(sizes) * (group if kind == 'reduce-scatter' else 1)
