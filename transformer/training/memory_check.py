"""Finds before the first step whether a run fits into the devices' memory."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from absl import logging

from transformer.errors import UserError, is_out_of_memory
from transformer.model.transformer import Transformer
from transformer.system import processes
from transformer.training import device_memory
from transformer.training.compilation import Programs, Setup, compile_programs

_TRIES = 10  # The most batch sizes that are compiled to find the largest that fits.


class Need(NamedTuple):
  """Bytes that a device needs while it runs a program.

  Attributes:
    name: the program, as log lines and errors name it.
    arguments: the program's arguments.
    outputs: its outputs, without those that take the memory of arguments.
    temporaries: its intermediate results.
    rest_of_state: the part of the training state that is not an argument.
  """

  name: str
  arguments: float
  outputs: float
  temporaries: float
  rest_of_state: float

  @property
  def total(self) -> float:
    """The sum of all parts."""
    return self.arguments + self.outputs + self.temporaries + self.rest_of_state


def compile_within_memory(settings, model: Transformer, setup: Setup,
                          shape: tuple[int, int, int],
                          compile_search: Callable[[Any], tuple[str, Any]],
                          begun: bool) -> tuple[Programs, int]:
  """Compiles the programs of a run, and checks that the devices have memory for them.

  Args:
    settings: the groups of the config that training reads. If the batches do not fit,
      `train.fit_memory` asks for smaller ones in place of an error.
    model: the model to train.
    setup: from `make_setup`.
    shape: rows, source positions and target positions of a batch.
    compile_search: a function (shapes of parameters) -> (name, program) that compiles the
      search for the longest sentences of the validation split.
    begun: whether the run has begun, so that the size of its batches cannot change.

  Returns:
    The programs, and the `train.tokens_per_batch` that they are compiled for.

  Raises:
    UserError: a device has too little memory; the message says what would fit.
  """
  rows, source_length, target_length = shape
  # Mesh axes split the rows of each part of a batch.
  unit = settings.optimizer.accumulate * setup.mesh.shape['data'] * setup.mesh.shape['fsdp']
  state = setup.state
  resident = state, setup.objective.arguments

  def compile_rows(rows: int) -> tuple[Programs | None, list[Need] | None]:
    """Returns the programs for batches of so many rows, and their needs; None if unknown."""
    named = f'{rows} rows of {source_length} + {target_length} tokens'
    try:
      programs = compile_programs(settings, model, setup, (rows, source_length, target_length))
    except jax.errors.JaxRuntimeError as error:
      if not is_out_of_memory(error):
        raise
      # Some compilers refuse a program that does not fit.
      return None, [Need(f'update, {named}', math.inf, 0, 0, 0)]
    return programs, needs_of(resident, (f'update, {named}', programs.train_step, resident),
                              (f'evaluation, {named}', programs.eval_step, state.best_params))

  logging.info('compiling the update, the evaluation and the search; the next start finds most of '
               'it in the cache')
  capacity = processes.least(device_memory.capacity())
  if capacity is not None:  # The needs below count the frozen arrays, which are there already.
    capacity += sum(leaf.size * leaf.dtype.itemsize
                    for leaf in jax.tree.leaves(setup.objective.frozen))
  programs, needs = compile_rows(rows)
  try:
    search_needs = needs_of(resident, (*compile_search(state.best_params), state.best_params))
  except jax.errors.JaxRuntimeError as error:
    if not is_out_of_memory(error):
      raise
    raise UserError('the search of the longest validation sentences does not fit into the memory '
                    'of a device, as its compiler says; lower decode.batch_size, or take a smaller '
                    'model') from error
  if programs is None and capacity is None:
    raise UserError(f'an update with train.tokens_per_batch={rows * target_length} does not fit '
                    f'into the memory of a device, as its compiler says; lower it, raise '
                    f'optimizer.accumulate, or set --config.model.remat=True')
  if capacity is None or needs is None or search_needs is None:
    logging.info('the memory of a device, or the memory that the programs need, is not known '
                 'here, so it is not checked')
    return programs, rows * target_length
  if max(_largest(needs), _largest(search_needs)) <= capacity:
    _log_line(capacity, [*needs, *search_needs])
    return programs, rows * target_length
  _log_table(capacity, [*needs, *search_needs])
  has = f'on a device that has {_size(capacity)} of memory'
  if _largest(search_needs) > capacity:
    raise UserError(f'the {search_needs[0].name}, needs {_size(_largest(search_needs))} {has}; '
                    f'lower decode.batch_size, or take a smaller model')
  asked = f'train.tokens_per_batch={rows * target_length} needs {_size(_largest(needs))} {has}'
  if begun:
    raise UserError(f'{asked}, and the run was begun with it; continue on devices with more '
                    f'memory, or on more devices, or set --config.model.remat=True')
  found, programs, needs = _largest_batch(compile_rows, unit, rows, _largest(needs), capacity)
  if not found:
    raise UserError(f'{asked}, and not even {unit * target_length} fits; raise '
                    f'optimizer.accumulate, set --config.model.remat=True, or take a smaller model')
  fits = f'train.tokens_per_batch={found * target_length}'
  if not settings.train.fit_memory:
    raise UserError(f'{asked}; the largest found to fit is {fits}: set that, or '
                    f'--config.train.fit_memory=True, or raise optimizer.accumulate')
  logging.info('%s; the run takes %s, and keeps it', asked, fits)
  _log_line(capacity, needs)
  return programs, found * target_length


def needs_of(state, *programs: tuple[str, Any, Any]) -> list[Need] | None:
  """Returns the bytes that a device needs to run compiled programs.

  Args:
    state: the training state and the frozen arrays, as arrays or shapes with shardings.
      They are in memory all the time.
    *programs: (name, compiled program, its part of the state) for each program.

  Returns:
    A `Need` for each program; None if the compiler does not tell.
  """
  needs = []
  for name, program, arguments in programs:
    found = program.memory_analysis()
    if found is None:
      return None
    needs.append(Need(
        name, found.argument_size_in_bytes,
        found.output_size_in_bytes - found.alias_size_in_bytes, found.temp_size_in_bytes,
        _bytes_on_device(state) - _bytes_on_device(arguments)))
  return needs


def _largest_batch(compile_rows, unit: int, rows: int, need: float, capacity: int):
  """Returns the largest multiple of `unit` below `rows` that fits, its programs and its needs.

  Memory is almost linear in the rows. So every second try interpolates between a size that
  fits and one that does not, and the others take the middle. The result is 0 if not even one
  `unit` fits.
  """
  low, high = (0, 0.0), (-(-rows // unit), need)  # Numbers of units, and the bytes they need.
  best = 0, None, None
  for count in range(_TRIES):
    if high[0] - low[0] <= 1:
      break
    if count == 0:
      number = 1
    elif count % 2 and math.isfinite(high[1]):
      share = (capacity - low[1]) / (high[1] - low[1])
      number = min(max(low[0] + int(share * (high[0] - low[0])), low[0] + 1), high[0] - 1)
    else:
      number = (low[0] + high[0]) // 2
    programs, needs = compile_rows(number * unit)
    if _largest(needs) <= capacity:
      best = number * unit, programs, needs
      low = number, _largest(needs)
    elif count == 0:
      break
    else:
      high = number, _largest(needs)
  return best


def _log_line(capacity: int, needs: list[Need]):
  """Logs the total of each program."""
  logging.info('memory on a device, which has %s: %s', _size(capacity),
               '; '.join(f'{need.name}: {_size(need.total)}' for need in needs))


def _log_table(capacity: int, needs: list[Need]):
  """Logs a table with the parts of each program's total."""
  title = f'memory on a device, which has {_size(capacity)}'
  width = max(len(text) for text in (title, *(need.name for need in needs)))
  heads = ('arguments', 'outputs', 'temporaries', 'rest of state', 'total')
  for name, *cells in ((title, *heads), *(
      (need.name, *map(_size, (*need[1:], need.total))) for need in needs)):
    logging.info('%s', '  '.join([name.ljust(width), *(cell.rjust(13) for cell in cells)]))


def _largest(needs: list[Need]) -> float:
  return max(need.total for need in needs)


def _bytes_on_device(tree) -> int:
  return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
             for leaf in jax.tree.leaves(tree))


def _size(count: float) -> str:
  """Returns a number of bytes as text for people."""
  if count == math.inf:
    return 'more than there is'
  return f'{count / 1e9:,.2f} GB' if count >= 1e9 else f'{count / 1e6:,.1f} MB'
