"""Whether a run fits into memory, found before its first step."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from absl import logging

from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.training import device_memory, processes
from transformer.training.mesh import make_mesh
from transformer.training.programs import Programs, compile_programs, state_like

_TRIES = 10  # Sizes that are compiled in search of the largest that fits.


class Need(NamedTuple):
  """Bytes that a program needs on a device while it runs.

  Attributes:
    name: what people call it.
    arguments: what it is given.
    outputs: what it gives, but for what lies where its arguments lay.
    temporaries: what it holds in between.
    beside: the part of the training state that it is not given, and that stays.
  """

  name: str
  arguments: float
  outputs: float
  temporaries: float
  beside: float

  @property
  def total(self) -> float:
    """All of it."""
    return self.arguments + self.outputs + self.temporaries + self.beside


def preflight(settings, model: Transformer, shape: tuple[int, int, int],
              compile_search: Callable[[Any], tuple[str, Any]],
              begun: bool) -> tuple[Programs, int]:
  """Compiles what a run runs, tells how much memory it takes, and refuses what cannot fit.

  Args:
    settings: the config's groups that training reads. `train.fit_memory` takes
      smaller batches where those that are asked for do not fit.
    model: what to train.
    shape: of a batch: rows, source positions and target positions.
    compile_search: given the shapes of parameters, compiles the search of the
      validation's longest sentences; what to call it, and the program.
    begun: whether the run has been begun, so that its batches must stay as they are.

  Returns:
    The programs, and the `train.tokens_per_batch` that they take.

  Raises:
    UserError: a device has not enough memory; says what would fit.
  """
  rows, source_length, target_length = shape
  mesh = make_mesh(settings.mesh, rows // settings.optimizer.accumulate)
  # An axis of the mesh splits the rows of each part of a batch.
  unit = settings.optimizer.accumulate * mesh.shape['data'] * mesh.shape['fsdp']
  state = state_like(settings, model, mesh)

  def attempt(rows: int) -> tuple[Programs | None, list[Need] | None]:
    """The programs for so many rows, and what they need."""
    named = f'{rows} rows of {source_length} + {target_length} tokens'
    try:
      programs = compile_programs(settings, model, state, mesh,
                                  (rows, source_length, target_length))
    except jax.errors.JaxRuntimeError as error:
      if 'RESOURCE_EXHAUSTED' not in str(error):
        raise
      return None, [Need(f'update, {named}', math.inf, 0, 0, 0)]  # So some compilers refuse.
    return programs, needs_of(state, (f'update, {named}', programs.train_step, state),
                              (f'evaluation, {named}', programs.eval_step, state.best_params))

  logging.info('compiling the update, the evaluation and the search; the next start finds most of '
               'it compiled')
  has = processes.least(device_memory.capacity())
  programs, needs = attempt(rows)
  searching = needs_of(state, (*compile_search(state.best_params), state.best_params))
  if has is None or needs is None or searching is None:
    logging.info('what the programs need of the memory of a device, or what it has, is not '
                 'known here, so it is not checked')
    return programs, rows * target_length
  if max(_most(needs), _most(searching)) <= has:
    _tell(has, [*needs, *searching])
    return programs, rows * target_length
  _tell_in_full(has, [*needs, *searching])
  if _most(searching) > has:
    raise UserError(f'the {searching[0].name}, needs {_size(_most(searching))} on a device that '
                    f'has {_size(has)} of memory; lower decode.batch_size, or take a smaller model')
  asked = f'train.tokens_per_batch={rows * target_length}'
  wanted = f'{asked} needs {_size(_most(needs))} on a device that has {_size(has)} of memory'
  if begun:
    raise UserError(f'{wanted}, and the run was begun with it; go on with it where there is more '
                    f'memory, or with --config.model.remat=True, or split it over more devices')
  found, programs, needs = _largest(attempt, unit, rows, _most(needs), has)
  if not found:
    raise UserError(f'{wanted}, and not even {unit * target_length} fits; raise '
                    f'optimizer.accumulate, set --config.model.remat=True, or take a smaller model')
  fits = f'train.tokens_per_batch={found * target_length}'
  if not settings.train.fit_memory:
    raise UserError(f'{wanted}; the largest found to fit is {fits}: set that, or '
                    f'--config.train.fit_memory=True, or raise optimizer.accumulate')
  logging.info('%s; the run takes %s, and keeps it', wanted, fits)
  _tell(has, needs)
  return programs, found * target_length


def needs_of(state, *programs: tuple[str, Any, Any]) -> list[Need] | None:
  """What compiled programs need of a device's memory.

  Args:
    state: the training state, as shapes with shardings, which is there throughout.
    *programs: of each its name, itself, and the part of the state that it is given.

  Returns:
    One each; None where the devices' compiler does not tell.
  """
  needs = []
  for name, program, given in programs:
    found = program.memory_analysis()
    if found is None:
      return None
    needs.append(Need(
        name, found.argument_size_in_bytes,
        found.output_size_in_bytes - found.alias_size_in_bytes, found.temp_size_in_bytes,
        _bytes(state) - _bytes(given)))
  return needs


def _largest(attempt, unit: int, rows: int, need: float, has: int):
  """The largest multiple of `unit` below `rows` that fits, with its programs and needs.

  What is needed grows with the rows nearly in a straight line, so the next to be
  tried lies where that line meets what there is; every other time, in case it is no
  line, in the middle. 0 if not even one `unit` fits.
  """
  low, high = (0, 0.0), (-(-rows // unit), need)
  best = 0, None, None
  for count in range(_TRIES):
    if high[0] - low[0] <= 1:
      break
    if count == 0:
      number = 1
    elif count % 2 and math.isfinite(high[1]):
      share = (has - low[1]) / (high[1] - low[1])
      number = min(max(low[0] + int(share * (high[0] - low[0])), low[0] + 1), high[0] - 1)
    else:
      number = (low[0] + high[0]) // 2
    programs, needs = attempt(number * unit)
    if _most(needs) <= has:
      best = number * unit, programs, needs
      low = number, _most(needs)
    elif count == 0:
      break
    else:
      high = number, _most(needs)
  return best


def _tell(has: int, needs: list[Need]):
  """Logs what is needed beside what there is, in a line."""
  logging.info('memory on a device, which has %s: %s', _size(has),
               '; '.join(f'{need.name}: {_size(need.total)}' for need in needs))


def _tell_in_full(has: int, needs: list[Need]):
  """Logs a table of what is needed, by what it is for, beside what there is."""
  heads = ('arguments', 'outputs', 'temporaries', 'rest of state', 'together')
  width = max(len(need.name) for need in needs)
  title = f'memory a device, which has {_size(has)}'
  logging.info('%s', '  '.join([title.ljust(width), *(head.rjust(13) for head in heads)]))
  for need in needs:
    sizes = need.arguments, need.outputs, need.temporaries, need.beside, need.total
    logging.info('%s', '  '.join([need.name.ljust(width), *(_size(size).rjust(13)
                                                            for size in sizes)]))


def _most(needs: list[Need]) -> float:
  return max(need.total for need in needs)


def _bytes(tree) -> int:
  """Bytes of a tree's arrays on one device."""
  return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
             for leaf in jax.tree.leaves(tree))


def _size(count: float) -> str:
  """Bytes for people."""
  if count == math.inf:
    return 'more than there is'
  return f'{count / 1e9:,.2f} GB' if count >= 1e9 else f'{count / 1e6:,.1f} MB'
