"""Tables for a paper have the numbers of the results, and LaTeX compiles them."""

import csv
import json
import math
import runpy
import statistics

import pytest

from launch import table3_page, table3_rows, tables
from launch.sweeping.means import means
from launch.sweeping.results import table
from tests import latex
from tests.launch import sweep_sandbox
from tests.launch.sweep_sandbox import GOOD
from transformer.config import flatten

ODD = 'a_b & 50% #1 {x} ~^$ | \\y'
ROWS = [['name', 'a|b'], [ODD, '1.50 ± 0.10'], ['plain', None]]


def cells_of(line):
  return [cell.strip() for cell in line.strip('|').split('|')]


def test_special_characters_are_escaped(tmp_path):
  written = tables.format_table(ROWS, 'latex')
  for escaped in (r'a\_b \& 50\% \#1 \{x\}', r'\$', r'\textasciitilde'):
    assert escaped in written
  latex.check(written, tmp_path)
  markdown = tables.format_table(ROWS, 'markdown').splitlines()
  assert all(line.count('|') - line.count(r'\|') == 3 for line in markdown)
  assert list(csv.reader(tables.format_table(ROWS, 'csv').splitlines())) == [
    ['name', 'a|b'],
    [ODD, '1.50 ± 0.10'],
    ['plain', ''],
  ]


def test_numbers_are_right_aligned_and_empty_columns_are_omitted():
  rows = [
    ['trial', 'bleu', 'norm', 'time', 'reason'],
    ['0', '1.50 ± 0.10', 'post', '0:02:08', ''],
    ['1 *', 'infinite', 'pre', None, None],
  ]
  latex_lines = tables.format_table(rows, 'latex').splitlines()
  assert latex_lines[0] == r'\begin{tabular}{rrlr}'
  head, marks, *_ = tables.format_table(rows, 'markdown').splitlines()
  assert cells_of(head) == ['trial', 'bleu', 'norm', 'time']
  ends = [cell[-1] for cell in cells_of(marks)]
  assert ends == [':', ':', '-', ':']
  assert tables.format_table(rows, 'csv').splitlines()[0].endswith(',time,reason')


def sweep_over_seeds(begin):
  """Returns a sweep of two values of dropout with three seeds each, of which one trial fails."""
  space = GOOD.replace('0.0, 0.5)}', "0.0, 0.5), 'seed': trial.number}")
  sweep = begin(space, 7)
  values = iter([10.123456, 11.5, 13.75, 20.0, 21.0, 25.25, math.nan])
  number = iter(range(7))

  def end(trial):
    trial.suggest_float('dropout', 0.0, 0.5)
    place = next(number)
    settings = {'model.dropout': 0.1 * (1 + place // 3), 'seed': place % 3}
    trial.set_user_attr('settings', settings)
    return next(values)

  while sweep.run_next(end) is not None:
    pass
  return sweep


@pytest.mark.parametrize('style', tables.FORMATS)
def test_the_table_of_a_sweep_has_the_values_of_its_trials(begin, tmp_path, style):
  sweep = sweep_over_seeds(begin)
  written = tables.format_table(table(sweep, exact=style == 'csv'), style)
  if style == 'csv':
    rows = list(csv.DictReader(written.splitlines()))
    assert [row['trial'] for row in rows] == ['0', '1', '2', '3', '4', '5', '6']
    for row, trial in zip(rows, sweep.started_trials(), strict=True):
      assert row['valid/bleu'] == ('' if trial.value is None else str(trial.value))
      settings = trial.user_attrs['settings']
      assert row['dropout'] == str(settings['model.dropout'])
    return
  assert ' 10.12 ' in written and ' 25.25 ' in written and ' 5 * ' in written
  if style == 'latex':
    latex.check(written, tmp_path)


@pytest.mark.parametrize('style', tables.FORMATS)
def test_a_sweep_has_means_over_seeds(begin, tmp_path, style):
  rows = means(sweep_over_seeds(begin), style)
  written = tables.format_table(rows, style)
  first = [10.123456, 11.5, 13.75]
  if style == 'csv':
    one, other = csv.DictReader(written.splitlines())
    assert float(one['valid/bleu']) == statistics.fmean(first)
    assert float(one['valid/bleu deviation']) == statistics.stdev(first)
    assert (one['dropout'], one['seeds'], other['seeds']) == ('0.1', '3', '3')
    return
  assert '11.79 ± 1.831' in written and '22.08 ± 2.788' in written
  if style == 'latex':
    latex.check(written, tmp_path)


def result(seed, perplexity, bleu, **differs):
  """Returns a row of table3.json."""
  return {
    'differs': {'model.dropout': 0.0, 'train.a_b%': 1, **differs},
    'scale': 4,
    'steps': 800,
    'perplexity': perplexity,
    'bleu': bleu,
    'signature': 'nrefs:1',
    'parameters': 1_900_544,
    'paper': {'perplexity': 4.92, 'bleu': 25.8, 'millions': 65},
    'data': {'name': 'text', 'languages': ['en', 'de'], 'fingerprints': {}},
    'commit': 'c0ffee00',
    'settings': {
      'seed': seed,
      'model.num_layers': 3,
      'model.norm_position': 'post',
      'optimizer.schedule': 'noam',
      'train.tokens_per_batch': 2048,
      'data.vocabulary_size': 4000,
    },
  }


@pytest.mark.parametrize('style', tables.FORMATS)
def test_table_3_has_the_numbers_of_its_results(tmp_path, style):
  base = [result(1, 12.454, 26.97), result(2, 12.58, 25.07), result(3, 12.31, 26.5)]
  results = {
    'base': base,
    'E': [result(1, 12.07, 26.764)],
    'big': [result(1, None, 0.0)],
  }
  written = table3_page.table(results, style)
  if style == 'csv':
    rows = {row['row']: row for row in csv.DictReader(written.splitlines())}
    bleu = [row['bleu'] for row in base]
    assert float(rows['base']['BLEU']) == statistics.fmean(bleu)
    assert float(rows['base']['BLEU deviation']) == statistics.stdev(bleu)
    assert (rows['base']['seeds'], rows['base']['parameters']) == ('3', '1900544')
    assert (rows['E']['PPL'], rows['E']['PPL deviation']) == ('12.07', '')
    assert (rows['E']['BLEU'], rows['big']['PPL']) == ('26.764', 'infinite')
    return
  for cell in ('12.45 ± 0.14', '26.18 ± 0.99', '26.76', 'infinite', '1,900,544'):
    assert f' {cell} ' in written
  if style == 'latex':
    assert r'a\_b\% 1' in written
    latex.check(written, tmp_path)
  else:
    assert cells_of(written.splitlines()[2])[-1] == '25.8'


@pytest.fixture(scope='module')
def launch(start_command):
  yield from start_command('launch.table3')


def test_seeds_of_a_row_are_joined(launch, folder, tmp_path):
  config = f'{folder}/tiny.py'
  flags = [
    f'--config={config}',
    f'--workdir={tmp_path}',
    '--rows=base',
    '--width_divisor=64',
  ]
  status, planned, err = launch(*flags, '--seeds=2', '--config.seed=4', '--dry_run')
  assert status == 0, err
  trained = planned.splitlines()[::2]
  assert trained[0].endswith(f'--workdir={tmp_path}/base')
  assert trained[1].endswith(f'--workdir={tmp_path}/seed5/base')
  assert '--config.seed=4 ' in trained[0] and '--config.seed=5 ' in trained[1]
  # The runs of both seeds are done, so nothing is trained.
  settings = runpy.run_path(config)['get_config']()
  for name, seed in (('', 4), ('seed5', 5)):
    (row,) = table3_rows.plan(['base'], settings, {'seed': seed}, 64, 6)
    done = result(seed, 12.0 + seed, 20.0 + seed)
    done['settings'] = json.loads(json.dumps(flatten(row.settings.to_dict())))
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / 'table3.json').write_text(json.dumps({'base': done}))
  status, out, err = launch(*flags, '--seeds=2', '--config.seed=4', '--format=csv')
  assert status == 0 and 'row base is finished' in err, err
  (row,) = csv.DictReader(out.splitlines())
  assert (row['seeds'], row['PPL'], row['BLEU']) == ('2', '16.5', '24.5')
  page = (tmp_path / 'table3.md').read_text('utf-8').splitlines()
  assert ' 2 | 16.50 ± 0.71 | ' in page[-1] and ' 24.50 ± 0.71 ' in page[-1]


@pytest.fixture(scope='module')
def launch_sweep(start_command):
  yield from start_command('launch.sweep')


@pytest.mark.parametrize('flags', [[], ['--format=csv'], ['--mean_over_seeds']])
def test_a_saved_sweep_prints_its_table_without_other_flags(
  begin, launch_sweep, tmp_path, flags
):
  sweep = sweep_over_seeds(begin)
  flags = [f'--workdir={tmp_path}/sweep', *flags]
  status, out, err = launch_sweep(*flags)
  assert status == 0, err
  if '--mean_over_seeds' in flags:
    assert '22.08 ± 2.788' in out
  elif '--format=csv' in flags:
    expected = tables.format_table(table(sweep, exact=True), 'csv')
    assert out.strip() == expected
  else:
    assert len(sweep_sandbox.rows_of(out)[1]) == 7 and ' 5 *' in out


def test_a_table_without_a_readable_sweep_is_a_one_line_error(
  begin, launch_sweep, tmp_path
):
  (tmp_path / 'empty').mkdir()
  message = launch_sweep.rejects(f'--workdir={tmp_path}/empty', '--format=latex')
  assert message.startswith(f'{tmp_path}/empty is not the directory of a sweep ')
  assert not any((tmp_path / 'empty').iterdir())
  message = launch_sweep.rejects(
    f'--workdir={tmp_path}/none', f'--storage=sqlite:///{tmp_path}/trials.db'
  )
  assert message.startswith(f'{tmp_path}/none is not the directory of a sweep ')
  assert not (tmp_path / 'trials.db').exists()
  # Whoever forgets a flag when a sweep is to continue still gets told so.
  message = launch_sweep.rejects(f'--workdir={tmp_path}/empty', '--trials=3')
  assert message.startswith('a flag is missing; ')
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'run.json').touch()
  message = launch_sweep.rejects(f'--workdir={tmp_path}/run', '--trials=3')
  assert message.startswith(f'--workdir={tmp_path}/run holds a single run; ')
  study = begin().study
  about = study.user_attrs['about']
  del about['objective']
  study.set_user_attr('about', about)
  message = launch_sweep.rejects(f'--workdir={tmp_path}/sweep')
  assert 'all its flags' in message and 'an earlier version' in message


@pytest.mark.parametrize(
  'flag', ['--workers=2', '--keep_best=1', '--slurm', '--sbatch=-n1', '--dry_run']
)
def test_a_flag_that_only_a_running_sweep_reads_is_not_ignored(
  begin, launch_sweep, tmp_path, flag
):
  begin()
  message = launch_sweep.rejects(f'--workdir={tmp_path}/sweep', flag)
  name = flag.partition('=')[0]
  assert message.startswith(f'{name} needs --config, --search_space and --trials; ')
  assert f'remove {name} to print the table' in message


SEEDS = """
def suggest(trial):
  return {'optimizer.noam_scale': 1.5, 'seed': trial.suggest_int('seed', 1, 1000)}
"""


@pytest.mark.long
def test_a_sweep_that_is_done_prints_only_its_table(folder, tmp_path):
  sandbox = tmp_path / 'sandbox'
  sweep_sandbox.build(sandbox)
  (tmp_path / 'space.py').write_text(SEEDS)
  flags = [
    f'--config={folder}/tiny.py',
    f'--search_space={tmp_path}/space.py',
    '--trials=3',
  ]
  flags.append('--config.train.steps=10')
  tables_of = []
  for more in ([], ['--format=csv'], ['--format=latex', '--mean_over_seeds']):
    sweep = sweep_sandbox.Sweep(sandbox, tmp_path / 'sweep', *flags, *more)
    sweep.start()
    tables_of.append(sweep.end(0))
  text, trials, latex_means = tables_of
  assert len(sweep_sandbox.rows_of(text)[1]) == 3
  rows = list(csv.DictReader(trials.splitlines()))
  assert [row['valid/bleu'] for row in rows] == ['15.0'] * 3
  assert '1.5' in latex_means and ' 15 ± 0 ' in latex_means and ' 3 ' in latex_means
  assert latex_means.splitlines()[-1] == r'\end{tabular}'
