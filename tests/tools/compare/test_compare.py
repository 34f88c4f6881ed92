"""The command prints the comparison and writes it as JSON, and a user error is one line."""

import csv
import json
import statistics
from pathlib import Path

import pytest

from tests import latex
from tests.tools.compare.test_comparison import GOOD, POOR, compared, write
from transformer import files
from transformer.config import Config


@pytest.fixture(scope='module')
def command(start_command):
  yield from start_command('transformer.tools.compare.__main__', takes_arguments=True)


def test_the_command_prints_the_table_and_what_differs_most(command, tmp_path):
  first, second = write(tmp_path, 'a', GOOD), write(tmp_path, 'b', POOR, beam_size=1)
  status, out, err = command(
    first,
    second,
    '--examples=2',
    f'--output={tmp_path}/found.json',
    '--allow_unequal_decoding',
  )
  assert status == 0, err
  assert (
    out.count('\nsource     ') == 2 and 'Eine Katze.' in out and f'[{second}]' in out
  )
  scores = [
    [json.loads(line)['chrF2++'] for line in path.read_text('utf-8').splitlines()]
    for run in (first, second)
    for path in Path(run).glob('eval/*.sentences.jsonl')
  ]
  shown = [
    float(line[:9])
    for line in out.splitlines()
    if line.endswith((f'[{first}]', f'[{second}]'))
  ]
  widest = max(abs(one - two) for one, two in zip(*scores, strict=True))
  assert abs(shown[0] - shown[1]) == pytest.approx(widest, abs=0.2)
  assert json.loads((tmp_path / 'found.json').read_text('utf-8')) == compared(
    first, second, allow=True
  )


@pytest.mark.parametrize('style', ['markdown', 'latex', 'csv'])
def test_a_table_has_the_numbers_of_the_json_and_nothing_else(command, tmp_path, style):
  first, second = write(tmp_path, 'a_1', GOOD), write(tmp_path, 'b', POOR)
  status, out, err = command(
    first, second, f'--format={style}', f'--output={tmp_path}/found.json'
  )
  assert status == 0, err
  found = json.loads((tmp_path / 'found.json').read_text('utf-8'))
  lines = out.splitlines()
  for name, system in found['systems'].items():
    bleu = system['scores']['BLEU']['mean']
    p = system['p'].get('BLEU')
    if style == 'csv':
      (row,) = [row for row in csv.DictReader(lines) if row['system'] == name][:1]
      assert float(row['mean']) == bleu and row['p'] == ('' if p is None else str(p))
      assert row['signature'] == found['signatures']['BLEU']
    else:
      (row,) = [
        line for line in lines if name.replace('_', r'\_') in line or name in line
      ]
      assert f'{bleu:.2f}' in row and (p is None or f'{p:.4f}' in row)
  if style == 'latex':
    assert r'a\_1' in out
    latex.check(out, tmp_path)


@pytest.mark.parametrize('style', ['text', 'markdown', 'latex', 'csv'])
def test_seeds_of_one_system_have_a_mean_and_a_deviation(command, tmp_path, style):
  seeds = [write(tmp_path, 'a', GOOD), write(tmp_path, 'b', POOR)]
  output = tmp_path / 'found.json'
  status, out, err = command(','.join(seeds), f'--format={style}', f'--output={output}')
  assert status == 0, err
  (system,) = json.loads(output.read_text('utf-8'))['systems'].values()
  bleu = system['scores']['BLEU']
  scores = []
  for run in seeds:
    for path in Path(run).glob('eval/*alpha0.6.json'):
      scores.append(json.loads(path.read_text('utf-8'))['bleu'])
  assert bleu['seeds'] == scores and bleu['mean'] == statistics.fmean(scores)
  if style == 'csv':
    row = next(csv.DictReader(out.splitlines()))
    assert float(row['mean']) == statistics.fmean(scores)
    assert float(row['deviation']) == statistics.stdev(scores)
  else:
    assert f'{statistics.fmean(scores):.2f} ± {statistics.stdev(scores):.2f}' in out
    assert 'p of' not in out


def test_settings_of_a_config_file_and_of_a_colleagues_copy_are_compared(
  command, tmp_path
):
  theirs = Config.from_dict({'model': {'num_layers': 3}, 'data': {'train': ('a', 'b')}})
  files.write_sealed(tmp_path / 'theirs.json', theirs.to_dict())
  mine = 'configs/base.py'
  status, out, err = command('--settings', mine, f'{tmp_path}/theirs.json')
  assert status == 0, err
  assert out.splitlines() == [
    "data.train: ('train',) -> ('a', 'b')",
    'model.num_layers: 6 -> 3',
  ]
  assert command('--settings', mine, mine)[1] == 'all settings are equal\n'
  assert 'pass two' in command.rejects('--settings', mine)
  assert 'cannot be read' in command.rejects('--settings', mine, f'{tmp_path}/no.json')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  """Runs by name, `b` and `d` with damaged results."""
  root, stem = tmp_path_factory.mktemp('runs'), 'eval/test.step5.beam4.alpha0.6'
  paths = {name: write(root, name, GOOD) for name in 'abde'}
  (root / 'b' / f'{stem}.json').write_text('[]')
  (root / 'd' / f'{stem}.sentences.jsonl').unlink()
  (root / 'a' / 'eval' / 'link').symlink_to(f'{stem}.json'.removeprefix('eval/'))
  return paths


@pytest.mark.parametrize(
  ('arguments', 'fact'),
  [
    ('{a}', 'pass two systems or more'),
    ('{a} {a}', 'may appear only once'),
    (
      '{e},{e}/ {a},{e}',
      'each result may appear only once',
    ),
    ('{a} /nowhere', "/nowhere/eval should hold a result for 'test'; it holds nothing"),
    ('{a} {e} --split=val', "result for 'val'; it holds test.step5.beam4"),
    ('{a},gs://b {a}', 'must be a local path'),
    ('{a} {b}', 'is incomplete: it lacks'),
    (
      '{a} {d}',
      'as a result of eval.py: No such file or directory; score the run again',
    ),
    ('{a} {e} --output={a}/eval/link', 'would overwrite'),
    ('{a} {e} --examples=-1', '--examples must be at least 0; got -1'),
  ],
)
def test_user_error_is_a_one_line_message(command, runs, arguments, fact):
  assert fact in command.rejects(*arguments.format(**runs).split())
