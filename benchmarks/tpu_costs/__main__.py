r"""Estimates the cost of a training step on a TPU slice, by compiling it on any machine.

  pip install "jax[tpu]"
  python -m benchmarks.tpu_costs --config=configs/wmt14.py:big --topology=v5e:16x16 \
      --config.model.dtype=bfloat16 --config.train.tokens_per_batch=1048576 --json=costs.json

The TPU compiler compiles the training step of train.py, which takes minutes. No data is read; the
vocabulary has the size that the config requests. The mesh is config.mesh. All numbers are for one
chip and one training step, and times are estimates; docs/launching.md explains them.
"""

from typing import Any

from absl import flags

from transformer import files
from transformer.cli import shared_flags
from transformer.config import Config
from transformer.errors import UserError
from transformer.system import command_line, outputs

_CONFIG = shared_flags.define_config()
_TOPOLOGY = flags.DEFINE_string(
  'topology', None, 'The slice, such as v5e:4x4 or v5p:4x4x4.'
)
_JSON = flags.DEFINE_string('json', None, 'A file for the results.')


def main(_):
  """Runs the compiler with the settings of the flags."""
  if _CONFIG.value is None or not _TOPOLOGY.value:
    raise UserError(
      'a flag is missing; pass --config=configs/NAME.py and --topology=NAME, such as v5e:4x4'
    )
  settings = Config.from_dict(_CONFIG.value.to_dict())
  if settings.model.attention == 'cudnn':
    raise UserError(
      'model.attention=cudnn needs an NVIDIA GPU; set --config.model.attention=reference'
    )
  if _JSON.value is not None:
    outputs.check_file('json', files.as_path(_JSON.value))
  # JAX is imported late, so that --help and errors are printed immediately.
  from benchmarks.compiled import training_step
  from benchmarks.tpu_costs import estimate

  training_step.check(settings)
  result = estimate.training_step_cost(settings, estimate.devices_of(_TOPOLOGY.value))
  print(training_step.describe(result, _TOPOLOGY.value))
  training_step.print_table(table(result))
  if not estimate.fits(result):
    print(
      'it does not fit into the memory of a chip; lower train.tokens_per_batch, split more by '
      'config.mesh, or set --config.model.remat=True'
    )
  if _JSON.value is not None:
    outputs.write(
      files.as_path(_JSON.value),
      files.json_bytes({'topology': _TOPOLOGY.value, 'meshes': [result]}),
    )


def table(result: dict[str, Any]) -> list[tuple[str, str]]:
  """Returns the numbers of `training_step_cost` in human-readable form: names and values."""
  from benchmarks.compiled.training_step import mesh_of
  from benchmarks.tpu_costs import estimate

  memory = result['memory']
  size = estimate.CHIPS[result['device_kind']].memory
  rows = [
    ('mesh', mesh_of(result)),
    (
      f'memory, of {size / 1e9:.0f} GB',
      f'{memory["total"] / 1e9:.2f} GB' if memory else 'too much to compile',
    ),
  ]
  if memory:
    rows += [
      (kind, f'{total["bytes"] / 1e6:,.1f} MB in {total["count"]:,}')
      for kind, total in result['collectives'].items()
    ]
    rows += [
      ('FLOPs of the model', f'{result["flops"]["model"] / 1e9:,.0f} G'),
      ('FLOPs that XLA counts', f'{result["flops"]["xla"] / 1e9:,.0f} G'),
      ('estimated compute', f'{1e3 * result["seconds"]["compute"]:.2f} ms'),
      ('estimated communication', f'{1e3 * result["seconds"]["communication"]:.2f} ms'),
      ('utilization, estimated', f'{result["utilization"]:.1%}'),
    ]
  return [*rows, ('compiled in', f'{result["compile_seconds"]:.0f} s')]


start = command_line.entry_point(main)

if __name__ == '__main__':
  start()
