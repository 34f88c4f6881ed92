r"""Counts the kernels of a search on GPUs, by compiling it on any machine.

  .venv-gpu/bin/python -m benchmarks.gpu_costs.searches --config=configs/wmt14.py --chip=h100 \
      --length=32 --config.decode.beam_size=1 --config.decode.batch_size=64 \
      --config.decode.max_extra_length=1 --config.model.dtype=bfloat16

XLA's GPU compiler compiles the search of eval.py; no GPU is needed. A decoding step, which is an
iteration of its loop, adds a token to each sentence. All numbers are for one step with full caches.
Times are estimates; docs/launching.md explains them.
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
_LENGTH = flags.DEFINE_integer('length', 32, 'Tokens of a source.', lower_bound=1)
_TOP = flags.DEFINE_integer('top', 20, 'Lines of kernels.', lower_bound=1)
_HLO = flags.DEFINE_string('hlo', None, 'Write the compiled HLO to this file.')
_JSON = flags.DEFINE_string('json', None, 'A file for the results.')


def main(_):
  """Runs the compiler with the settings of the flags."""
  if _CONFIG.value is None:
    raise UserError('--config is missing; pass --config=configs/NAME.py')
  settings = Config.from_dict(_CONFIG.value.to_dict())
  if _LENGTH.value > settings.data.max_length:
    raise UserError(
      f'--length={_LENGTH.value} exceeds data.max_length={settings.data.max_length}; lower '
      '--length or raise data.max_length'
    )
  for flag in (_HLO, _JSON):
    if flag.value is not None:
      outputs.check_file(flag.name, files.as_path(flag.value))
  # JAX is imported late, so that --help and errors are printed immediately.
  from benchmarks.compiled import hlo, search, training_step
  from benchmarks.gpu_costs import chips, estimate, search_steps

  chip = chips.chip_of(_CHIP.value)
  (device,) = chips.devices_of(chip, '1x1x1')
  compiled = search.compile_search(settings, _LENGTH.value, device)
  if _HLO.value is not None:
    outputs.write(files.as_path(_HLO.value), compiled.text.encode())
  found = search_steps.read(hlo.parse(compiled.text))
  result = {
    **compiled.facts,
    'memory': compiled.memory,
    **search_steps.cost(found, chip),
  }
  print(describe(compiled.facts, _CHIP.value))
  training_step.print_table(table(result))
  print(f'\n{"us":>8} {"kernels":>8} {"MB":>8}  place')
  parts = estimate.group_kernels(found, chip, 'place')
  for place, part in list(parts.items())[: _TOP.value]:
    microseconds = f'{1e6 * part.seconds:.1f}'
    moved = f'{part.moved / 1e6:.1f}'
    print(f'{microseconds:>8} {part.kernels:>8} {moved:>8}  {place}')
  if _JSON.value is not None:
    content = {'chip': _CHIP.value, **result}
    outputs.write(files.as_path(_JSON.value), files.json_bytes(content))


def describe(facts: dict[str, Any], chip: str) -> str:
  """Returns one line that describes the compilation."""
  beams = facts['beam_size']
  return (
    f'{chip}, {f"beam {beams}" if beams > 1 else "greedy"}: {facts["sentences"]:,} sentences of '
    f'{facts["length"]} tokens, {facts["dtype"]}, commit {facts["commit"][:7]}'
  )


def table(result: dict[str, Any]) -> list[tuple[str, str]]:
  """Returns the numbers of a decoding step in human-readable form: names and values."""
  sentences = result['sentences']
  return [
    ('memory', f'{result["memory"]["total"] / 1e9:.2f} GB'),
    ('kernels', f'{result["kernels"]:,}'),
    *((f'  {kind}', f'{count:,}') for kind, count in result['kinds'].items()),
    ('bytes moved', f'{result["moved"] / 1e6:,.1f} MB'),
    ('bytes moved for a token', f'{result["moved"] / sentences / 1e6:,.2f} MB'),
    ('estimated decoding step', f'{1e3 * result["seconds"]:.3f} ms'),
    ('estimated tokens a second', f'{sentences / result["seconds"]:,.0f}'),
    ('compiled in', f'{result["compile_seconds"]:.0f} s'),
  ]


start = command_line.entry_point(main)

if __name__ == '__main__':
  start()
