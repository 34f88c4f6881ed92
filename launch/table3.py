r"""Trains the rows of the paper's table 3 on any corpus; compares the results with the paper's.

  python launch/table3.py --config=configs/text.py --workdir=runs/table3 --config.data.dir=DIR \
      --config.train.steps=20000
  python launch/table3.py --config=configs/wmt14.py --workdir=runs/table3 --rows=base,A1,E
  python launch/table3.py --config=configs/text.py --workdir=runs/small --width_divisor=4 \
      --layers=3 --dry_run

train.py trains one row after another in WORKDIR/ROW. eval.py scores the last checkpoint on the
validation split, without checkpoint averaging (section 6.2). configs/table3.py sets model
dimensions, dropout, label smoothing and position encodings of each row; --config sets all others.
`big` is trained for three times the number of steps, as in the paper. For a smaller machine,
--width_divisor=2 halves every width, and --layers=3 halves the layers of all rows. Fused attention
on NVIDIA GPUs does not support the heads of rows A1 and B; --config.model.attention=reference does.

--seeds=3 trains each row with config.seed and the next two seeds, which are in WORKDIR/seedN/ROW;
the table then shows means and standard deviations. --format=markdown, latex or csv prints it.

After each row, the table is written to WORKDIR/table3.md and WORKDIR/table3.json, with the names of
the datasets. When rerun, the command skips finished rows and resumes an interrupted run.
"""

import contextlib
import fcntl
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags, logging
from ml_collections import config_flags

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launch import child_process, table3_page, tables
from launch.config_file import command_line_overrides, plain_settings
from launch.table3_rows import BASE_LAYERS, PAPER, ROOT, Row, plan
from transformer import files
from transformer.cli import shared_flags
from transformer.cli.request import resolve_splits
from transformer.decoding.config import resolve_decode_options
from transformer.errors import UserError, short_repr
from transformer.evaluation.results import Result, decode_metadata, read_results
from transformer.runs import run_directory
from transformer.runs.metrics_file import read_metrics
from transformer.system import command_line, outputs

_CONFIG = shared_flags.define_config()
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'The directory of the table and of its runs.'
)
_ROWS = flags.DEFINE_list(
  'rows', list(PAPER), 'The rows to train, such as base,A1,E (default: all).'
)
_WIDTH_DIVISOR = flags.DEFINE_integer(
  'width_divisor', 1, 'Divides model_dim, ff_dim, key_dim and value_dim.'
)
_LAYERS = flags.DEFINE_integer('layers', BASE_LAYERS, 'The layers of the base row.')
_SEEDS = flags.DEFINE_integer(
  'seeds', 1, 'The number of seeds per row: config.seed and the following ones.'
)
_FORMAT = flags.DEFINE_enum(
  'format', None, tables.FORMATS, 'Print the table for a paper or a spreadsheet.'
)
_DRY_RUN = flags.DEFINE_bool(
  'dry_run', False, 'Print the commands without starting them.'
)

_JSON = 'table3.json'
_MARKDOWN = 'table3.md'


def main(_):
  """Reads the flags and trains the rows."""
  if _CONFIG.value is None or not _WORKDIR.value:
    raise UserError(
      'a flag is missing; pass --config=configs/NAME.py and --workdir=DIR'
    )
  unknown = [name for name in _ROWS.value if name not in PAPER]
  if unknown:
    raise UserError(
      f'--rows must name rows of table 3, out of {",".join(PAPER)}; '
      f'got {short_repr(",".join(unknown))}'
    )
  shared_flags.check_at_least(1, _WIDTH_DIVISOR, _LAYERS, _SEEDS)
  workdir = files.as_path(_WORKDIR.value)
  outputs.check_folder('workdir', workdir)
  filename = config_flags.get_config_filename(flags.FLAGS['config'])
  planned = _planned(workdir)
  if _DRY_RUN.value:
    for folder, rows in planned.items():
      for row in rows:
        for command in commands(row, filename, folder):
          print(shlex.join(command))
    return
  with child_process.stop_on_signal():
    for folder, rows in planned.items():
      run_rows(rows, filename, folder, child_process.run)
      results = _of_all_seeds(list(planned))
      files.write(workdir / _MARKDOWN, table3_page.page(results).encode())
  if _FORMAT.value:
    print(table3_page.table(results, _FORMAT.value))


def _planned(workdir: Path) -> dict[Path, list[Row]]:
  """Returns the rows to train, by the folder of their seed."""
  overrides = command_line_overrides(_CONFIG)
  first = _CONFIG.value.seed
  planned = {}
  for seed in range(first, first + _SEEDS.value):
    folder = workdir if seed == first else workdir / f'seed{seed}'
    planned[folder] = plan(
      _ROWS.value,
      _CONFIG.value,
      {**overrides, 'seed': seed},
      _WIDTH_DIVISOR.value,
      _LAYERS.value,
    )
  return planned


def commands(row: Row, filename: str, workdir: Path) -> tuple[list[str], list[str]]:
  """Returns the commands that train and score a row with the config file `filename`."""
  run = f'--workdir={workdir / row.name}'
  changes = [f'--config.{name}={value}' for name, value in row.changes.items()]
  return (
    [sys.executable, str(ROOT / 'train.py'), f'--config={filename}', *changes, run],
    [
      sys.executable,
      str(ROOT / 'eval.py'),
      run,
      '--split=valid',
      '--checkpoint=latest',
    ],
  )


def run_rows(
  rows: Sequence[Row],
  filename: str,
  workdir: Path,
  start: Callable[[Sequence[str]], int],
):
  """Trains and scores the unfinished rows, and writes the table after each row.

  `start` runs a command until it exits, and returns its status.
  """
  for row in rows:
    settings = plain_settings(row.settings)
    if _read(workdir).get(row.name, {}).get('settings') == settings:
      logging.info('row %s is finished', row.name)
      continue
    logging.info(
      'row %s: %s', row.name, table3_page.differences(row.differs) or 'the base model'
    )
    for command in commands(row, filename, workdir):
      if status := start(command):
        raise UserError(
          f'row {row.name}: {Path(command[1]).name} ended with status {status}, for the reason '
          'above; rerun the command to resume, or exclude the row with --rows'
        )
    _add(workdir, row.name, {**_result(row, workdir / row.name), 'settings': settings})
  logging.info('the table is in %s', workdir / _MARKDOWN)


def _add(workdir: Path, name: str, result: dict[str, Any]):
  """Adds a row to the table; other processes may add rows at the same time."""
  folder = os.open(workdir, os.O_RDONLY)
  try:
    with contextlib.suppress(OSError):  # Some file systems lack locks.
      fcntl.flock(folder, fcntl.LOCK_EX)
    results = {**_read(workdir), name: result}
    results = {row: results[row] for row in PAPER if row in results}
    files.write_json(workdir / _JSON, results)
    page = table3_page.page(_of_all_seeds([workdir]))
    files.write(workdir / _MARKDOWN, page.encode())
  finally:
    os.close(folder)


def _read(workdir: Path) -> dict[str, Any]:
  """Returns the results of the finished rows, by name."""
  path = workdir / _JSON
  try:
    return json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}
  except ValueError as error:
    raise UserError(
      f'{path}, which stores the finished rows, is damaged; remove it to score the rows again'
    ) from error


def _of_all_seeds(folders: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
  """Returns the results of the finished rows, by name: a list with one result per seed."""
  results = {}
  for folder in folders:
    for name, result in _read(folder).items():
      results.setdefault(name, []).append(result)
  return results


def _result(row: Row, run: Path) -> dict[str, Any]:
  """Returns the results of a row, read from the directory of its run."""
  record = run_directory.read_record(run)
  metrics = read_metrics(run / run_directory.METRICS)
  last = [row for row in metrics if 'valid/perplexity' in row][-1]
  data = row.settings.data
  (split,) = resolve_splits(data, ['valid'], '')
  results = read_results(run / run_directory.RESULTS, split.replace('/', '_'))
  decoding = resolve_decode_options(row.settings.decode, row.settings.seed)
  expected = Result(
    None,
    {
      'steps': [last['step']],
      'ensemble': [],
      'more': {},
      'decode': decode_metadata(decoding),
    },
  )
  score = next(
    result.content
    for result in results
    if (result.name, result.decoding) == (expected.name, expected.decoding)
  )
  perplexity, bleu, millions = PAPER[row.name]
  return {
    'differs': dict(row.differs),
    'scale': row.width_divisor,
    'steps': last['step'],
    'perplexity': last['valid/perplexity'],
    'bleu': score['bleu'],
    'signature': score['signature'],
    'parameters': record['parameters'],
    'paper': {'perplexity': perplexity, 'bleu': bleu, 'millions': millions},
    'data': {
      'name': data.tfds_name if data.source == 'tfds' else data.dir or data.source,
      'train': list(data.train),
      'valid': data.valid,
      'languages': [data.source_language, data.target_language],
      'fingerprints': record['data'],
    },
    'commit': record['commit'],
    'devices': record['devices'],
  }


if __name__ == '__main__':
  command_line.run(main, use_compilation_cache=False)
