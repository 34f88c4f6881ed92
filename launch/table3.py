r"""Trains the rows of the paper's table 3 on any corpus, and puts the figures beside the paper's.

  python launch/table3.py --config=configs/text.py --workdir=runs/table3 --config.data.dir=DIR \
      --config.train.steps=20000
  python launch/table3.py --config=configs/wmt14.py --workdir=runs/table3 --rows=base,A1,E
  python launch/table3.py --config=configs/text.py --workdir=runs/small --scale=4 --layers=3 \
      --dry_run

train.py trains one row after another in WORKDIR/ROW. eval.py scores the last checkpoint on the
validation split, without an average (section 6.2). configs/table3.py sets the model's shape,
dropout, smoothing and positions of each row, and --config sets the rest. `big` is trained for three
times as many steps, as in the paper. For a smaller machine, --scale=2 halves every width, and
--layers=3 halves the layers of all rows. The fused attention of an NVIDIA GPU cannot take the heads
of rows A1 and B; --config.model.attention=reference takes all.

After each row, the table is written to WORKDIR/table3.md and WORKDIR/table3.json, with the names of
its data. Started again, the command skips rows that are done and resumes a run that was stopped.
"""

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import runpy
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags, logging
from ml_collections import ConfigDict, config_flags

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from transformer import files
from transformer.commands import shared_flags
from transformer.commands.config_file import given_settings
from transformer.config import Config, flatten
from transformer.errors import UserError
from transformer.evaluation.results import Decoding, describe, read_all
from transformer.evaluation.texts import split_name
from transformer.runs import run_directory
from transformer.system import child_process, command_line, outputs

_BASE_LAYERS = 6
_CONFIG = shared_flags.define_config()
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the table and of its runs.')
_ROWS = flags.DEFINE_list('rows', None, 'The rows to train, such as base,A1,E; default: all.')
_SCALE = flags.DEFINE_integer('scale', 1, 'Divides model_dim, ff_dim, key_dim and value_dim.')
_LAYERS = flags.DEFINE_integer('layers', _BASE_LAYERS, 'The layers of the base row.')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the commands, and start none of them.')

ROOT = Path(__file__).resolve().parents[1]
# The paper's perplexity per word piece and BLEU on newstest2013; millions of parameters, if given.
PAPER = {
    'base': (4.92, 25.8, 65), 'A1': (5.29, 24.9, None), 'A2': (5.00, 25.5, None),
    'A3': (4.91, 25.8, None), 'A4': (5.01, 25.4, None), 'B1': (5.16, 25.1, 58),
    'B2': (5.01, 25.4, 60), 'C1': (6.11, 23.7, 36), 'C2': (5.19, 25.3, 50),
    'C3': (4.88, 25.5, 80), 'C4': (5.75, 24.5, 28), 'C5': (4.66, 26.0, 168),
    'C6': (5.12, 25.4, 53), 'C7': (4.75, 26.2, 90), 'D1': (5.77, 24.6, None),
    'D2': (4.95, 25.5, None), 'D3': (4.67, 25.3, None), 'D4': (5.47, 25.7, None),
    'E': (4.92, 25.7, None), 'big': (4.33, 26.4, 213)}
_JSON, _MARKDOWN = 'table3.json', 'table3.md'
_PREFACE = """# Table 3 of the paper, row by row

Perplexity is per word piece, without smoothing. BLEU is computed by sacreBLEU for the last
checkpoint on the validation split. The paper's columns are for newstest2013, after 100,000 updates
(`big`: 300,000) on WMT 2014 English to German. With other data or another scale, compare a row with
the other rows, and not with the paper's figures. A scale of 1/4 means that model_dim, ff_dim,
key_dim and value_dim are a quarter of the paper's. If the base row has fewer layers than the
paper's 6, rows C1 to C3 have fewer in proportion.

"""
_COLUMNS = ('row', 'differs from base by', 'scale', 'steps', 'PPL', 'paper', 'BLEU', 'paper',
            'parameters', 'paper, millions', 'otherwise', 'data', 'commit')


class Row(NamedTuple):
  """A row to train.

  Attributes:
    name: the group and the place in it, such as `A1`.
    differs: the settings that differ from the base row, by dotted name.
    scale: the divisor of the paper's widths.
    changes: all settings that override the config file, by dotted name.
    settings: all settings of the run.
  """

  name: str
  differs: Mapping[str, Any]
  scale: int
  changes: Mapping[str, Any]
  settings: Config


def main(_):
  """Wires flags to the rows."""
  if _CONFIG.value is None or not _WORKDIR.value:
    raise UserError('--config=configs/NAME.py and --workdir=DIR are both needed')
  names = list(PAPER) if _ROWS.value is None else _ROWS.value
  unknown = [name for name in names if name not in PAPER]
  if unknown or not names:
    raise UserError(f'--rows must name rows of table 3, out of {",".join(PAPER)}; '
                    f'got {",".join(unknown or names)!r}')
  shared_flags.check_at_least(1, _SCALE, _LAYERS)
  workdir = Path(_WORKDIR.value).expanduser()
  outputs.check_folder('workdir', workdir)
  rows = plan(names, _CONFIG.value, given_settings(_CONFIG), _SCALE.value, _LAYERS.value)
  filename = config_flags.get_config_filename(flags.FLAGS['config'])
  if _DRY_RUN.value:
    for row in rows:
      for command in commands(row, filename, workdir):
        print(shlex.join(command))
    return
  run_rows(rows, filename, workdir,
           lambda command: child_process.run(child_process.leashed(command)))


def plan(names: Sequence[str], config: ConfigDict, overrides: Mapping[str, Any],
         scale: int, layers: int) -> list[Row]:
  """Returns the rows to train, all checked.

  Args:
    names: keys of `PAPER`.
    config: the settings of the config file and the command line.
    overrides: the settings of the command line.
    scale: the divisor of every width.
    layers: the layers of the base row.

  Raises:
    UserError: the config, the scale or the layers do not fit a row, or the command line sets a
      key that the rows set, or the runs parse.
  """
  base, base_steps = _of_the_paper('base', scale, layers)
  taken = sorted(base.keys() & overrides.keys())
  if taken:
    raise UserError(f'the rows of table 3 set config.{taken[0]} themselves; leave '
                    f'--config.{taken[0]} out; use --scale and --layers for smaller rows')
  rows = []
  for name in names:
    shape, steps = _of_the_paper(name, scale, layers)
    differs = {key: value for key, value in shape.items() if value != base[key]}
    if steps != base_steps:
      differs['train.steps'] = config.train.steps * steps // base_steps
    changes = {**overrides, **shape, **differs}
    settings = ConfigDict(config.to_dict())
    settings.update_from_flattened_dict(changes)
    try:
      rows.append(Row(name, differs, scale, changes, Config.from_dict(settings.to_dict())))
    except UserError as error:
      raise UserError(f'row {name} does not go with this config: {error}; change the config, '
                      f'or leave the row out with --rows') from error
    _check(rows[-1].settings)
  return rows


def _check(settings: Config):
  """Refuses settings with which a row would not be what its name says."""
  for stack in ('encoder_layers', 'decoder_layers'):
    if (number := getattr(settings.model, stack)) is not None:
      raise UserError(f'the rows of table 3 set config.model.num_layers for both stacks; leave '
                      f'config.model.{stack}={number} out')


def _of_the_paper(name: str, scale: int, layers: int) -> tuple[dict[str, Any], int]:
  """Returns the settings of a row by dotted name, scaled, and the paper's steps."""
  # A config is not imported but loaded as a file, as in train.py.
  get_config = runpy.run_path(str(ROOT / 'configs' / 'table3.py'))['get_config']
  settings = Config.from_dict(get_config(name).to_dict())
  model = settings.model
  widths = {'model_dim': model.model_dim, 'ff_dim': model.ff_dim,
            'key_dim': model.head_key_dim, 'value_dim': model.head_value_dim}
  for key, width in widths.items():
    if width % scale:
      raise UserError(f'--scale must divide every width of a row; {key} of row {name} is {width}, '
                      f'got --scale={scale}')
  num_layers, left = divmod(model.num_layers * layers, _BASE_LAYERS)
  if left:
    multiple = _BASE_LAYERS // math.gcd(model.num_layers, _BASE_LAYERS)
    raise UserError(f'--layers must be a multiple of {multiple} for row {name}, which has '
                    f'{model.num_layers} layers where base has {_BASE_LAYERS}; got '
                    f'--layers={layers}; change it, or leave the row out with --rows')
  return {'model.num_layers': num_layers, 'model.num_heads': model.num_heads,
          **{f'model.{key}': width // scale for key, width in widths.items()},
          'model.dropout': model.dropout, 'model.positions': model.positions,
          'train.label_smoothing': settings.train.label_smoothing}, settings.train.steps


def commands(row: Row, filename: str, workdir: Path) -> tuple[list[str], list[str]]:
  """Returns the commands that train and score a row with the config file `filename`."""
  run = f'--workdir={workdir / row.name}'
  changes = [f'--config.{name}={value}' for name, value in row.changes.items()]
  return ([sys.executable, str(ROOT / 'train.py'), f'--config={filename}', *changes, run],
          [sys.executable, str(ROOT / 'eval.py'), run, '--split=valid', '--checkpoint=latest'])


def run_rows(rows: Sequence[Row], filename: str, workdir: Path,
             start: Callable[[Sequence[str]], int]):
  """Trains and scores the rows that are not done yet, and writes the table after each.

  Args:
    rows: from `plan`.
    filename: the config file.
    workdir: the directory of the table; the run of a row is in WORKDIR/ROW.
    start: runs a command to its end, and returns its status.

  Raises:
    UserError: a command failed.
    Preempted: a command was asked to stop.
  """
  for row in rows:
    settings = json.loads(json.dumps(flatten(row.settings.to_dict())))
    if _read(workdir).get(row.name, {}).get('settings') == settings:
      logging.info('row %s is done', row.name)
      continue
    logging.info('row %s: %s', row.name, _differences(row.differs) or 'the base model')
    for command in commands(row, filename, workdir):
      if status := start(command):
        raise UserError(f'row {row.name}: {Path(command[1]).name} ended with status {status}, for '
                        f'the reason above; start this again to go on, or leave the row out with '
                        f'--rows')
    _add(workdir, row.name, {**_result(row, workdir / row.name), 'settings': settings})
  logging.info('the table is in %s', workdir / _MARKDOWN)


def _add(workdir: Path, name: str, result: dict[str, Any]):
  """Adds a row to the table, to which other processes may add rows at the same time."""
  folder = os.open(workdir, os.O_RDONLY)
  try:
    with contextlib.suppress(OSError):  # Some file systems have no locks.
      fcntl.flock(folder, fcntl.LOCK_EX)
    results = {**_read(workdir), name: result}
    results = {each: results[each] for each in PAPER if each in results}
    files.write_json(workdir / _JSON, results)
    files.write(workdir / _MARKDOWN, (_PREFACE + _markdown(results)).encode())
  finally:
    os.close(folder)


def _read(workdir: Path) -> dict[str, Any]:
  """Returns the results of the rows that are done, by name."""
  path = workdir / _JSON
  try:
    return json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}
  except ValueError as error:
    raise UserError(f'{path} should hold the rows that are done, and is damaged; remove it to '
                    f'score the rows again') from error


def _result(row: Row, run: Path) -> dict[str, Any]:
  """Returns the results of a row, from the directory of its run."""
  about = files.read_sealed(run / run_directory.RUN, 'what is known of the run')
  lines = (run / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()
  last = [each for each in map(json.loads, lines) if 'valid/perplexity' in each][-1]
  data = row.settings.data
  decode = row.settings.decode
  scores = read_all(run / run_directory.EVALUATIONS, str(run),
                    split_name(data, 'valid').replace('/', '_'))
  alone = describe([last['step']], Decoding(decode, row.settings.seed, ensemble=[]))
  score = next(result.content for result in scores if result.fields == alone
               and result.content['decode'] == dataclasses.asdict(decode))
  perplexity, bleu, millions = PAPER[row.name]
  return {
      'differs': dict(row.differs), 'scale': row.scale, 'steps': last['step'],
      'perplexity': last['valid/perplexity'], 'bleu': score['bleu'],
      'signature': score['signature'], 'parameters': about['parameters'],
      'paper': {'perplexity': perplexity, 'bleu': bleu, 'millions': millions},
      'data': {'name': data.name if data.source == 'tfds' else data.dir or data.source,
               'train': list(data.train), 'valid': data.valid,
               'languages': [data.source_language, data.target_language],
               'fingerprints': about['data']},
      'commit': about['commit'], 'devices': about['devices']}


def _markdown(results: Mapping[str, Any]) -> str:
  """Returns the table."""
  lines = [_COLUMNS, ('---',) * len(_COLUMNS)]
  for name, row in results.items():
    settings, paper, data = row['settings'], row['paper'], row['data']
    otherwise = (f'{settings["model.num_layers"]} layers, {settings["model.norm"]}-norm, '
                 f'schedule {settings["optimizer.schedule"]}, '
                 f'{settings["train.tokens_per_batch"]:,} tokens a batch, vocabulary '
                 f'{settings["data.vocabulary_size"]:,}')
    # JSON has no infinity, which a perplexity may be.
    perplexity = 'infinite' if row['perplexity'] is None else f'{row["perplexity"]:.2f}'
    prints = ', '.join(f'{what} {digest[:8]}' for what, digest in data['fingerprints'].items()
                       if what != 'vocabulary')
    lines.append((
        name, _differences(row['differs']), '1' if row['scale'] == 1 else f'1/{row["scale"]}',
        f'{row["steps"]:,}', perplexity, f'{paper["perplexity"]:.2f}',
        f'{row["bleu"]:.2f}', f'{paper["bleu"]:.1f}', f'{row["parameters"]:,}',
        str(paper['millions'] or ''), otherwise,
        f'{data["name"]}, {" to ".join(data["languages"])}, {prints}', row['commit'][:7]))
  return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def _differences(differs: Mapping[str, Any]) -> str:
  """Returns settings as text, their names without the groups."""
  return ', '.join(f'{name.partition(".")[2]} {value}' for name, value in differs.items())


if __name__ == '__main__':
  command_line.run(main, launches=True)
