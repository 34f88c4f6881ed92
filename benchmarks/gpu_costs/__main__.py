r"""Estimates the cost of a training step on GPUs, by compiling it on any machine.

  python3.12 -m venv .venv-gpu
  .venv-gpu/bin/pip install -r benchmarks/gpu_costs/requirements.txt
  .venv-gpu/bin/python -m benchmarks.gpu_costs --config=configs/wmt14.py:big --chip=h100 \
      --topology=1x1x8 --config.model.dtype=bfloat16 --config.model.attention=cudnn \
      --config.train.tokens_per_batch=524288

XLA's GPU compiler compiles the training step of train.py, which takes minutes; no GPU is needed.
No data is read; the vocabulary has the size that the config requests. The mesh is config.mesh. All
numbers are for one GPU and one training step, and times are estimates; docs/launching.md explains
them.
"""

from typing import Any

from absl import flags

from transformer import files
from transformer.cli import shared_flags
from transformer.config import Config
from transformer.errors import UserError
from transformer.system import command_line, outputs

_CONFIG = shared_flags.define_config()
_CHIP = flags.DEFINE_string(
  'chip',
  'h100',
  'h100, h200, a100-80gb, a100-40gb, or a JSON file in the format of chips.json.',
)
_TOPOLOGY = flags.DEFINE_string(
  'topology', '1x1x1', '1xHOSTSxGPUS, such as 1x1x8 for the eight GPUs of a host.'
)
_BY = flags.DEFINE_enum(
  'by', None, ['kind', 'place'], 'Also print a breakdown of time and bytes.'
)
_TOP = flags.DEFINE_integer('top', 20, 'Number of lines of --by.', lower_bound=1)
_HLO = flags.DEFINE_string('hlo', None, 'Write the compiled HLO to this file.')
_JSON = flags.DEFINE_string('json', None, 'A file for the results.')


def main(_):
  """Runs the compiler with the settings of the flags."""
  if _CONFIG.value is None:
    raise UserError('--config is missing; pass --config=configs/NAME.py')
  settings = Config.from_dict(_CONFIG.value.to_dict())
  for flag in (_HLO, _JSON):
    if flag.value is not None:
      outputs.check_file(flag.name, files.as_path(flag.value))
  # JAX is imported late, so that --help and errors are printed immediately.
  from benchmarks.compiled import hlo, training_step
  from benchmarks.gpu_costs import chips, estimate, kernels

  training_step.check(settings)
  chip = chips.chip_of(_CHIP.value)
  devices = chips.devices_of(chip, _TOPOLOGY.value)
  compiled = training_step.compile_training_step(settings, devices)
  name = f'{_CHIP.value} {_TOPOLOGY.value}'
  print(training_step.describe(compiled.facts, name))
  if not compiled.text:
    raise UserError(f'the compiler found no program that fits {_FITS}')
  if _HLO.value is not None:
    outputs.write(files.as_path(_HLO.value), compiled.text.encode())
  result = estimate.cost(compiled, chip, int(_TOPOLOGY.value.rpartition('x')[2]))
  rows = table(result, chip.memory, settings.train.steps)
  training_step.print_table(rows)
  if not result['fits']:
    print(f'it does not fit {_FITS}')
  if _BY.value:
    found = kernels.read(hlo.parse(compiled.text))
    print(f'\n{"ms":>8} {"kernels":>8} {"GB":>8}  {_BY.value}')
    parts = estimate.group_kernels(found, chip, _BY.value)
    for key, part in list(parts.items())[: _TOP.value]:
      milliseconds = f'{1e3 * part.seconds:.2f}'
      moved = f'{part.moved / 1e9:.2f}'
      print(f'{milliseconds:>8} {part.kernels:>8} {moved:>8}  {key}')
  if _JSON.value is not None:
    content = {'chip': _CHIP.value, 'topology': _TOPOLOGY.value, **result}
    outputs.write(files.as_path(_JSON.value), files.json_bytes(content))


_FITS = (
  'into 75% of the memory of a GPU; lower train.tokens_per_batch, split more by '
  'config.mesh, or set --config.model.remat=True'
)


def table(result: dict[str, Any], memory: int, steps: int) -> list[tuple[str, str]]:
  """Returns the numbers of `estimate.cost` in human-readable form: names and values."""
  from benchmarks.compiled.training_step import mesh_of

  seconds = result['seconds']
  total = seconds['total']
  collectives = [
    (kind, f'{counted["bytes"] / 1e6:,.1f} MB in {counted["count"]:,}')
    for kind, counted in result['collectives'].items()
    if counted['count']
  ]
  return [
    ('mesh', mesh_of(result)),
    (f'memory, of {memory / 1e9:.0f} GB', f'{result["memory"]["total"] / 1e9:.2f} GB'),
    ('kernels', f'{result["kernels"]:,}'),
    ('bytes moved', f'{result["moved"] / 1e9:,.1f} GB'),
    *collectives,
    ('FLOPs of the model', f'{result["flops"]["model"] / 1e9:,.0f} G'),
    ('estimated products', f'{1e3 * seconds["products"]:.1f} ms'),
    ('estimated attention', f'{1e3 * seconds["attention"]:.1f} ms'),
    ('estimated other kernels', f'{1e3 * seconds["other"]:.1f} ms'),
    ('estimated collectives', f'{1e3 * seconds["collectives"]:.1f} ms'),
    ('estimated training step', f'{1e3 * total:.1f} ms'),
    (f'days for {steps:,} steps', f'{steps * total / 86_400:.2f}'),
    ('utilization, estimated', f'{result["utilization"]:.1%}'),
    ('compiled in', f'{result["compile_seconds"]:.0f} s'),
  ]


start = command_line.entry_point(main)

if __name__ == '__main__':
  start()
