r"""Estimates the cost of an update on a slice of TPUs, by compiling it on any machine.

  pip install "jax[tpu]"
  python -m transformer.tools.tpu_costs --config=configs/wmt14.py:big --topology=v5e:16x16 \
      --config.model.dtype=bfloat16 --config.train.tokens_per_batch=1048576
  python -m transformer.tools.tpu_costs --config=configs/wmt14.py --topology=v5e:4x4 --mesh=best \
      --config.model.dtype=bfloat16 --config.train.tokens_per_batch=65536 --json=costs.json

The TPUs' own compiler compiles the update of train.py, which takes minutes. No data is read; the
vocabulary has the size that the config asks for. The mesh is config.mesh. With --mesh=best, several
promising meshes are compiled, and the fastest that fits into memory is named.

All figures are for one chip and one update:

  memory        the memory that the compiler reserves
  collectives   their number and bytes. A collective in a loop counts once for each turn. The bytes
                are the whole array: the input of a reduce-scatter, the output of any other kind
  time          an estimate, never measured: the cycles that the compiler expects of its fusions,
                plus the time to send the bytes of all collectives at the full rate of all links.
                Operations outside fusions, the latency of messages and overlap are left out
  utilisation   the model's FLOPs in that time, as a share of the chip's peak
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from transformer.commands import shared_flags
from transformer.config import Config
from transformer.errors import UserError
from transformer.system import command_line, outputs

_CONFIG = shared_flags.define_config()
_TOPOLOGY = flags.DEFINE_string('topology', None, 'The slice, such as v5e:4x4 or v5p:4x4x4.')
_MESH = flags.DEFINE_enum('mesh', 'config', ['config', 'best'], 'config: the mesh of the config; '
                          'best: the fastest of several that fit into memory.')
_JSON = flags.DEFINE_string('json', None, 'A file for the results.')


def main(_):
  """Wires flags to the compiler."""
  if _CONFIG.value is None or not _TOPOLOGY.value:
    raise UserError('--config=configs/NAME.py and --topology=NAME, such as v5e:4x4, are both '
                    'needed')
  settings = Config.from_dict(_CONFIG.value.to_dict())
  if settings.model.attention == 'cudnn':
    raise UserError('model.attention=cudnn needs an NVIDIA GPU; set '
                    '--config.model.attention=reference')
  if settings.train.objective_runs:
    raise UserError(f'train.objective_runs must be empty here, where no run is read; got '
                    f'{", ".join(settings.train.objective_runs)}; leave them out')
  shared_flags.check_named(_JSON)
  if _JSON.value is not None:
    outputs.check_file('json', Path(_JSON.value).expanduser())
  # JAX is imported late, so that --help and mistakes are answered at once.
  from transformer.tools.tpu_costs import estimate
  devices = estimate.devices_of(_TOPOLOGY.value)
  results = list(estimates(settings, devices, _MESH.value == 'best'))
  title = f'{_TOPOLOGY.value}, {len(devices)} chips'
  print('\n'.join(table(title, results)))
  best = estimate.best(results)
  if best is None:
    print('no mesh above fits into the memory of a chip; lower train.tokens_per_batch, or set '
          '--config.model.remat=True')
  elif len(results) > 1:
    print('best: ' + ' '.join(f'--config.mesh.{axis}={n}' for axis, n in best['mesh'].items()))
  if _JSON.value is not None:
    found = {'topology': _TOPOLOGY.value, 'meshes': results}
    outputs.write(Path(_JSON.value).expanduser(), json.dumps(found, indent=2).encode())


def estimates(settings: Config, devices: Sequence[Any], try_meshes: bool
              ) -> Iterator[dict[str, Any]]:
  """Yields the results of `estimate.update_cost` for the config's mesh or the candidates.

  Raises:
    UserError: no mesh splits the rows over the devices.
  """
  from transformer.tools.tpu_costs import estimate
  if not try_meshes:
    yield estimate.update_cost(settings, devices)
    return
  rows = settings.rows_at_once
  meshes = list(estimate.candidate_meshes(len(devices), rows, settings.model.num_heads))
  if not meshes:
    raise UserError(f'{len(devices)} chips, or a half, a quarter or an eighth of them, must divide '
                    f'the rows that go through the model at a time; got '
                    f'train.tokens_per_batch / data.max_length / optimizer.accumulate = {rows}; '
                    f'lower data.max_length, raise train.tokens_per_batch, or take fewer chips')
  for mesh in meshes:
    yield estimate.update_cost(dataclasses.replace(settings, mesh=mesh), devices)


def table(title: str, results: Sequence[dict[str, Any]]) -> list[str]:
  """Returns the lines of a table: a row for each figure, and a column for each mesh."""
  from transformer.tools.tpu_costs import estimate, hlo
  columns = [('mesh', [' × '.join(f'{axis} {size}' for axis, size in each['mesh'].items()
                                  if size > 1) or 'one chip' for each in results])]

  def add(name, value):
    columns.append((name, ['' if each['memory'] is None else value(each) for each in results]))

  columns.append((f'memory, of {estimate.CHIPS[results[0]["device_kind"]].memory / 1e9:.0f} GB',
                  [_memory(each, estimate.fits(each)) for each in results]))
  for kind in hlo.KINDS:
    add(kind, lambda each, kind=kind: f'{each["collectives"][kind]["bytes"] / 1e6:,.1f} MB'
        f' in {each["collectives"][kind]["count"]:,}')
  add('FLOPs of the model', lambda each: f'{each["flops"]["model"] / 1e9:,.0f} G')
  add('FLOPs that XLA counts', lambda each: f'{each["flops"]["xla"] / 1e9:,.0f} G')
  add('estimated arithmetic', lambda each: f'{1e3 * each["seconds"]["arithmetic"]:.2f} ms')
  add('estimated wire', lambda each: f'{1e3 * each["seconds"]["wire"]:.2f} ms')
  add('utilisation, estimated', lambda each: f'{each["utilisation"]:.1%}')
  add('compiled in', lambda each: f'{each["compile_seconds"]:.0f} s')
  each = results[0]
  title += (f': {each["rows"]:,} rows of {each["max_length"]} + {each["max_length"]} tokens, '
            f'{each["dtype"]}, commit {each["commit"][:7]}')
  first = max(len(name) for name, _ in columns)
  widths = [max(len(cells[i]) for _, cells in columns) for i in range(len(results))]
  return [title, *('  '.join([name.ljust(first), *(
      cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
      for name, cells in columns)]


def _memory(result: dict[str, Any], fits: bool) -> str:
  if result['memory'] is None:
    return 'too much to compile'
  return f'{result["memory"]["total"] / 1e9:.2f} GB' + ('' if fits else ', too much')


def start():
  """Runs `main` with the flags of the command line; `attention-tpu_costs` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
