"""The one-line errors of a sweep, and the commands that it would start."""

import math
import runpy
import shlex

import optuna
import pytest

from launch.sweeping import space, study, trials
from tests.launch.sweep_sandbox import GOOD
from transformer.config import Config


def returning(value):
  return f'def suggest(trial):\n  return {value}\n'


@pytest.mark.parametrize(
  ('text', 'flags', 'facts'),
  [
    (GOOD, ['--trials=0'], ['--trials must be at least 1; got 0']),
    (GOOD, ['--sbatch=--time=1'], ['--sbatch=--time=1 is for jobs; add --slurm']),
    (
      GOOD,
      ['--slurm', "--sbatch=--comment='a"],
      ['split into words: No closing quotation'],
    ),
    (GOOD, ['--search_space='], ['--search_space= is empty']),
    (
      GOOD,
      ['--search_space=/nowhere.py'],
      ['--search_space must be the file', '/nowhere.py: No such file'],
    ),
    (GOOD, ['--workdir=a:b'], ['--workdir must not contain a colon', 'a:b']),
    (
      GOOD,
      ['--config.model.num_heads=3'],
      ['num_heads must divide model_dim; got num_heads=3'],
    ),
    (
      GOOD,
      ["--config.model={'dropout': 0.3}"],
      ['space.py sets model.dropout for each trial; remove --config.model.dropout'],
    ),
    ('def suggest(:', [], ['space.py cannot be loaded: SyntaxError']),
    ('import sys\nsys.exit(3)', [], ['space.py cannot be loaded: SystemExit: 3']),
    ('', [], ['space.py must define suggest(trial)']),
    ('suggest = 3', [], ['suggest must be a function; got 3']),
    (
      GOOD + 'objective = "valid/blue"',
      [],
      ['objective must be one of valid/bleu, ', "/blue'"],
    ),
    (
      GOOD + 'objective = "valid/f1"',
      [],
      [
        "objective 'valid/f1' is computed only by a function of --config.train.valid_metric"
      ],
    ),
    (
      GOOD + 'objective = "valid/chrf"',
      [],
      [
        "objective 'valid/chrf' is computed only with --config.train.best_by=chrf; got ''"
      ],
    ),
    (
      returning({'optimizer.peak_learning_rate': 0.1}),
      ['--config.optimizer.schedule=noam'],
      ['space.py searches optimizer.peak_learning_rate, which has no effect with'],
    ),
    (GOOD + 'obejctive = "valid/loss"', [], ['defines obejctive', 'names with _']),
    (
      GOOD + 'def pruner(): return 3',
      [],
      ['pruner() must return one of optuna.pruners; got 3'],
    ),
    (GOOD + 'def sampler(): pass', [], ['sampler(seed) failed: TypeError']),
    (
      returning(
        "{'data.passes_per_epoch': trial.suggest_categorical('weights', [(1.0,), (2.0,)])}"
      ),
      [],
      ['Choices for a categorical distribution should be', 'let suggest sample a name'],
    ),
    (returning({}), [], ['suggest(trial) must return a dict', 'got {}']),
    (returning({3: 4}), [], ['suggest(trial) must return a dict', 'got {3: 4}']),
    (returning('open("/gone")'), [], ['suggest(trial) failed: FileNotFoundError']),
    (
      returning({'model.dropuot': 0.1}),
      [],
      ['no key config.model.dropuot; did you mean'],
    ),
    (
      returning({'model.dropout': '0.1'}),
      [],
      ['config.model.dropout must be of type float'],
    ),
    (
      returning({'model.num_heads': 3}),
      [],
      [
        'the config rejects all 20 trials',
        'num_heads must divide model_dim; got num_heads=3',
      ],
    ),
    (returning({'data.valid': 'test'}), [], ['must be comparable, so data.valid']),
    (
      returning({'decode.alpha': 0.5}),
      [],
      ['use greedy search, so decode.alpha has no effect'],
    ),
    (
      returning({'data.split_digits': True}) + 'objective = "valid/loss"',
      [],
      ['valid/loss is the loss per token, and data.split_digits changes the tokens'],
    ),
    (
      returning({'data.vocabulary_size': 300}) + 'objective = "valid/loss"',
      [],
      ['valid/loss is the loss per token, and data.vocabulary_size changes the tokens'],
    ),
  ],
)
def test_user_error_is_a_one_line_message_before_anything_is_started(
  launch, folder, tmp_path, text, flags, facts
):
  (tmp_path / 'space.py').write_text(text)
  message = launch.rejects(
    f'--config={folder}/tiny.py',
    f'--search_space={tmp_path}/space.py',
    f'--workdir={tmp_path}/sweep',
    '--trials=3',
    '--dry_run',
    *flags,
  )
  for fact in facts:
    assert fact in message, message
  assert not (tmp_path / 'sweep').exists()


@pytest.mark.parametrize(
  ('reason', 'start_of_error'),
  [
    (None, 'no trial is complete; all were pruned; '),
    ('it broke', 'no trial is complete; the last failed trial reports: it broke'),
  ],
)
def test_a_sweep_without_a_result_says_why(
  launch, one_error, folder, tmp_path, reason, start_of_error
):
  def end(trial):
    if reason is None:
      raise optuna.TrialPruned
    trial.set_user_attr('reason', reason)
    return math.nan

  (tmp_path / 'space.py').write_text(GOOD)
  config = runpy.run_path(str(folder / 'tiny.py'))['get_config']()
  (tmp_path / 'sweep').mkdir()
  sweep = study.Sweep(
    tmp_path / 'sweep',
    space.load(str(tmp_path / 'space.py')),
    Config.from_dict(config.to_dict()),
    2,
  )
  sweep.begin()
  while sweep.num_unfinished():
    sweep.run_next(end)
  flags = (
    f'--config={folder}/tiny.py',
    f'--search_space={tmp_path}/space.py',
    f'--workdir={tmp_path}/sweep',
  )
  status, out, err = launch(*flags, '--trials=2')
  assert status == 1 and one_error(err).startswith(start_of_error)
  assert out.splitlines()[2].split()[:2] == ['1', 'failed' if reason else 'pruned']
  message = launch.rejects(*flags, '--trials=1')
  assert message.startswith('--trials=1 is fewer than the 2 that '), message


@pytest.mark.parametrize(
  ('name', 'file'),
  [('quickstart', 'quickstart'), ('multi30k', 'multi30k'), ('ablation', 'text')],
)
def test_the_spaces_that_come_with_the_code_draw_configs(name, file, monkeypatch):
  monkeypatch.chdir(trials.ROOT)
  searched = space.load(f'configs/sweeps/{name}.py')
  command = runpy.run_path(searched.filename)['__doc__'].split('\n\n')[1]
  words = shlex.split(command.replace('\\\n', ''))
  assert (
    words[:2] == ['python', 'launch/sweep.py']
    and f'--search_space=configs/sweeps/{name}.py' in words
  )
  # The config accepts everything that may be drawn.
  config = Config.from_dict(
    runpy.run_path(f'configs/{file}.py')['get_config']().to_dict()
  )
  flags = (word[9:].split('=') for word in words if word.startswith('--config.'))
  config = space.with_settings(
    config, {key: int(value) for key, value in flags if value.isdecimal()}
  )
  study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
  for _ in range(50):
    assert (
      space.with_settings(config, space.sample_settings(searched, study.ask()))
      != config
    )


def test_a_sweep_on_slurm_is_one_array_job(launch, folder, tmp_path):
  (tmp_path / 'space.py').write_text(GOOD)
  status, out, err = launch(
    f'--config={folder}/tiny.py',
    f'--search_space={tmp_path}/space.py',
    f'--workdir={tmp_path}/a 5% b',
    '--trials=3',
    '--workers=4',
    '--slurm',
    '--sbatch=--gres=gpu:1 --comment="a b"',
    '--dry_run',
  )
  assert status == 0, err
  first, *script, last = out.splitlines()
  assert shlex.split(first) == [
    'sbatch',
    '--job-name=sweep',
    '--requeue',
    '--signal=USR1@120',
    '--open-mode=append',
    '--array=0-3',
    f'--output={tmp_path}/a 5%% b/workers/%a.log',
    '--gres=gpu:1',
    '--comment=a b',
    '<<END',
  ]
  assert (script[0], last) == ('#!/bin/bash', 'END')
  worker = next(shlex.split(line) for line in script if line.startswith('srun'))
  assert worker[-1] == '--worker=$SLURM_ARRAY_TASK_ID'
  assert f'--workdir={tmp_path}/a 5% b' in worker and '--slurm' in worker
  assert '--dry_run' not in worker
  assert not (tmp_path / 'a 5% b').exists()


@pytest.mark.long
@pytest.mark.parametrize('function', ['write', 'align_columns'])
def test_ctrl_c_after_the_last_trial_ends_a_sweep_as_the_page_says(
  default_signal_handlers, launch, folder, tmp_path, function
):
  """The search space sends it when the sweep writes its page, or prints its table."""
  (tmp_path / 'space.py').write_text(f"""
import os, signal
from launch.sweeping import results as _results

def suggest(trial):
  return {{'model.num_heads': 3 if trial.number == 0 else 2}}

_before = _results.{function}

def _stop(*arguments):
  os.kill(os.getpid(), signal.SIGINT)
  return _before(*arguments)

_results.{function} = _stop
""")
  status, out, err = launch(
    f'--config={folder}/tiny.py',
    f'--search_space={tmp_path}/space.py',
    f'--workdir={tmp_path}/sweep',
    '--trials=1',
  )
  assert (status, out) == (75, ''), err
  assert 'stopped by SIGINT' in err and 'Traceback' not in err
