"""The kernels of a program for a GPU: memory traffic, FLOPs of products, integer operations.

A kernel reads its operands from memory and writes its result to memory, once each. If it only
slices an operand or gathers from it, only the bytes read count. If it updates a result in place,
only the update counts. Integer operations are counted in fusions, such as the hash of dropout.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.compiled import hlo
from benchmarks.compiled.hlo import Instruction, Program

# Instructions that are not kernels; the second half of an asynchronous one only waits.
_FREE = ('parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast', 'after-all')
_TAKE = ('gather', 'dynamic-slice', 'slice')
_RENAME = ('bitcast', 'reshape')
_UPDATE = 'dynamic-update-slice'
_SHIFTS = ('shift-left', 'shift-right-logical')
_INTEGER_OPERATIONS = ('add', 'subtract', 'multiply', 'and', 'or', 'xor', *_SHIFTS)
_INTEGERS = ('s8', 'u8', 's16', 'u16', 's32', 'u32')


class Kernel(NamedTuple):
  """A kernel of a program.

  Attributes:
    name: as in the text.
    count: number of launches in a run of the program.
    moved: bytes that it reads and writes, per launch.
    flops: operations of its matrix products, per launch.
    kind: a library function such as `__cudnn$fmhaScaleBiasSoftmax`, `product`, or an opcode.
    place: its origin in the model, JAX's `op_name`; may be empty.
    integers: operations on integers of at most 32 bits, per launch.
  """

  name: str
  count: int
  moved: int
  flops: float
  kind: str
  place: str
  integers: int = 0


def read(program: Program) -> list[Kernel]:
  """Returns the kernels of a program; from a conditional, only the branch that moves most bytes."""
  return list(_Reader(program).walk(program.entry, 1))


class _Reader:
  """Finds the kernels of a program; looks up instructions by name."""

  def __init__(self, program: Program):
    self._program = program
    self._shapes = {}
    for name, instructions in program.computations.items():
      self._shapes[name] = {each.name: each.shape for each in instructions}

  def walk(self, computation: str, times: int) -> Iterator[Kernel]:
    for instruction in self._program.computations[computation]:
      opcode = instruction.opcode
      is_wait = opcode.endswith(('-done', '-update')) or opcode.startswith('async-')
      is_sent = opcode.removesuffix('-start') in hlo.KINDS
      if opcode in _FREE or is_wait or is_sent:
        continue
      if opcode == 'while':
        body = re.search(r'body=%?([\w.\-]+)', instruction.rest)[1]
        yield from self.walk(body, times * self._program.trips(instruction))
      elif opcode == 'conditional':
        branches = [list(self.walk(name, times)) for name in instruction.callees]
        yield from max(branches, key=lambda kernels: sum(one.moved for one in kernels))
      elif opcode == 'call':
        yield from self.walk(instruction.callees[0], times)
      else:
        yield self._kernel(computation, instruction, times)

  def _kernel(self, computation: str, instruction: Instruction, times: int) -> Kernel:
    shapes = [self._shapes[computation].get(name, '') for name in instruction.operands]
    flops = self._flops(computation, instruction)
    moved = hlo.bytes_of(instruction.shape) + sum(map(hlo.bytes_of, shapes))
    opcode = instruction.opcode.removesuffix('-start')
    integers = 0
    if opcode == 'copy':
      moved = 2 * sum(map(hlo.bytes_of, shapes))
    if opcode == 'fusion':
      (fused,) = instruction.callees
      flops = sum(
        self._flops(fused, each) for each in self._program.computations[fused]
      )
      integers = self._integers(fused)
      moved = self._written(fused)
      for index, shape in enumerate(shapes):
        moved += self._taken(fused, index, shape)
    target = re.search(r'custom_call_target="([^"]+)"', instruction.rest)
    kind = 'product' if flops else target[1] if target else opcode
    place = re.search(r'op_name="([^"]*)"', instruction.rest)
    place = place[1] if place else ''
    return Kernel(instruction.name, times, moved, flops, kind, place, integers)

  def _flops(self, computation: str, instruction: Instruction) -> float:
    """Returns the operations of a matrix product: two for each term."""
    is_library = '__cublas$' in instruction.rest
    if instruction.opcode != 'dot' and not is_library:
      return 0.0
    axes = re.search(
      r'lhs_contracting_dim(?:ension)?s"?[=:][{\[]([\d,"]*)[}\]]', instruction.rest
    )
    left = hlo.dimensions(self._shapes[computation][instruction.operands[0]])
    terms = math.prod(left[int(axis)] for axis in re.findall(r'\d+', axes[1]))
    return 2.0 * terms * math.prod(hlo.dimensions(instruction.shape))

  def _integers(self, fused: str) -> int:
    """Returns the integer operations of a fusion; a rotation, two shifts and an `or`, is one."""
    instructions = self._program.computations[fused]
    rotated = set()
    for each in instructions:
      if each.opcode == 'or':
        rotated.update(each.operands)
    count = 0
    for each in instructions:
      is_integer = each.shape.startswith(_INTEGERS)
      is_part = each.opcode in _SHIFTS and each.name in rotated
      if is_integer and each.opcode in _INTEGER_OPERATIONS and not is_part:
        count += math.prod(hlo.dimensions(each.shape))
    return count

  def _taken(self, fused: str, index: int, shape: str) -> int:
    """Returns the bytes that a fusion reads of an operand."""
    shapes = self._shapes[fused]
    names = set()
    taken = 0
    for each in self._program.computations[fused]:
      if each.opcode == 'parameter' and each.rest.startswith(f'{index})'):
        names.add(each.name)
      operands = each.operands
      if not names.intersection(operands):
        continue
      if each.opcode in _RENAME:
        names.add(each.name)
      elif each.opcode in _TAKE and operands[0] in names:
        taken += hlo.bytes_of(each.shape)
      elif each.opcode == _UPDATE and operands[0] in names:
        taken += hlo.bytes_of(shapes[operands[1]])
      else:
        return hlo.bytes_of(shape)
    return min(taken, hlo.bytes_of(shape))

  def _written(self, fused: str) -> int:
    """Returns the bytes that a fusion writes."""
    instructions = {each.name: each for each in self._program.computations[fused]}
    root = self._program.computations[fused][-1]
    written = hlo.bytes_of(root.shape)
    while root.opcode in _RENAME:
      root = instructions[root.operands[0]]
    if root.opcode == _UPDATE:
      return hlo.bytes_of(self._shapes[fused][root.operands[1]])
    return written
