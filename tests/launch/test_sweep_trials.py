"""The trials of a sweep: their fraction of a machine, their progress, their end and the page."""

import math

import optuna
import pytest

from launch.gpus import visible_gpus
from launch.sweeping import trials, workers
from tests.launch.sweep_sandbox import GOOD
from transformer.errors import UserError

# The beginning of a stand-in for train.py.
PROGRAM = """
import json, os, pathlib, sys, time
from transformer import files
from transformer.runs.run_directory import FORMAT
run = pathlib.Path(sys.argv[2].partition('=')[2])
run.mkdir(exist_ok=True)
files.write_sealed(run / 'run.json', {'format': FORMAT, 'commit': 'c0ffee'})

def write(*rows):
  with (run / 'metrics.jsonl').open('a') as metrics:
    metrics.writelines(json.dumps(row) + '\\n' for row in rows)
"""


@pytest.mark.parametrize(
  ('number', 'cores', 'gpus', 'shares'),
  [
    (2, 5, None, [([0, 1], None, None), ([2, 3, 4], None, None)]),
    (3, 2, None, [([0], None, None), ([1], None, None), ([0], None, None)]),
    (2, 2, '3,5,6,7', [([0], '3,5', None), ([1], '6,7', None)]),
    (3, 3, '4,5', [([0], '4', '0.450'), ([1], '5', '0.450'), ([2], '4', '0.450')]),
    (2, 2, '-1', [([0], None, None), ([1], None, None)]),
    (1, 1, '5, -1,6', [([0], '5', None)]),
  ],
)
def test_workers_share_a_machine(number, cores, gpus, shares):
  environment = {} if gpus is None else {'CUDA_VISIBLE_DEVICES': gpus}
  if gpus is None and visible_gpus({}):
    pytest.skip('this machine has GPUs')
  for worker, (own, gpu, memory) in enumerate(shares):
    part, changes = workers.share_of_machine(worker, number, range(cores), environment)
    assert part == set(own)
    assert changes.get('CUDA_VISIBLE_DEVICES') == gpu
    assert changes.get('XLA_PYTHON_CLIENT_MEM_FRACTION') == memory


def test_a_worker_whose_first_trials_fail_at_once_for_one_reason_stops(
  begin, monkeypatch
):
  def failing(reason, **attributes):
    def run_trial(sweep, trial, children, signals):
      for name, value in attributes.items():
        trial.set_user_attr(name, value)
      trial.set_user_attr('reason', reason.format(trial.number, 'ab'[trial.number % 2]))
      return math.nan

    return run_trial

  monkeypatch.setattr(
    workers, 'run_trial', failing('no memory for {0} bytes', seconds=1.0)
  )
  with pytest.raises(
    UserError, match=r'first 4 trials .* with the same error: no memory for # bytes; '
  ):
    workers.work(begin(number=9), False, '')
  assert begin(number=9).num_unfinished() == 5
  # Two reasons, and settings that the config rejects.
  for number, run_trial in (
    (9, failing('no {1}', seconds=1.0)),
    (18, failing('it is rejected')),
  ):
    monkeypatch.setattr(workers, 'run_trial', run_trial)
    sweep = begin(number=number)
    workers.work(sweep, False, '')
    assert not sweep.num_unfinished()


@pytest.fixture
def train(begin, tmp_path, monkeypatch):
  """(code of train.py, more of the search space) -> a sweep after one trial, and the trial."""

  def train(code, text='', **changes):
    (tmp_path / 'train.py').write_text(PROGRAM + code)
    monkeypatch.setattr(trials, 'ROOT', tmp_path)
    monkeypatch.setenv('PYTHONPATH', str(trials.Path(__file__).parents[2]))
    sweep, children = begin(GOOD + text, **changes), []
    return sweep, sweep.run_next(
      lambda trial: trials.run_trial(sweep, trial, children, [])
    )

  return train


@pytest.mark.parametrize(
  ('changes', 'pruned'),
  [
    ({'train.steps': 15}, False),
    ({'train.steps': 30, 'train.patience': 3}, True),
    # By the loss, the first evaluation stays the best, too, and ties do not count as better.
    ({'train.steps': 30, 'train.patience': 2, 'train.best_by': 'loss'}, False),
  ],
)
def test_the_pruner_is_not_asked_about_the_last_evaluation_of_a_run(
  train, changes, pruned
):
  """It would end each trial at step 15, for a BLEU of 2."""
  _, trial = train(
    """
write(*({'step': step, 'valid/bleu': bleu, 'valid/loss': 2.0}
        for step, bleu in ((5, 4.0), (10, 3.0), (15, 2.0))))
""",
    'import optuna\ndef pruner():\n  return optuna.pruners.ThresholdPruner(lower=2.5)\n',
    **changes,
  )
  state = optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
  assert (trial.state, trial.user_attrs['step']) == (state, 15 if pruned else 5)
  assert [*trial.intermediate_values] == [5, 10, 15]


@pytest.mark.parametrize(
  ('code', 'reason'),
  [
    ("sys.exit('I1 a\\nerror: the first\\nerror: the last\\nI2 b')", 'the last'),
    (
      "print('error: x', flush=True); os.kill(os.getpid(), 9)",
      'train.py was killed by SIGKILL, perhaps out of memory',
    ),
    (
      "write({'step': 5, 'valid/bleu': None, 'valid/loss': None})",
      'valid/bleu was never a finite number',
    ),
  ],
)
def test_the_reason_of_a_failure(train, code, reason):
  sweep, trial = train(code)
  assert (trial.state, trial.user_attrs['reason']) == (
    optuna.trial.TrialState.FAIL,
    reason,
  )
  assert sweep.num_unfinished() == 2


@pytest.mark.parametrize(
  ('objective', 'value', 'step'),
  [('valid/loss', 2.0, 10), ('valid/bleu', 3.0, 20), ('valid/f1', 3.0, 15)],
)
def test_the_best_evaluation_counts_and_nan_never_does(train, objective, value, step):
  sweep, trial = train(
    """
write({'step': 5, 'train/loss': 1.0},
      {'step': 5, 'valid/loss': None, 'valid/bleu': None, 'valid/f1': None},
      {'step': 10, 'valid/loss': 2.0, 'valid/bleu': 1.0, 'valid/f1': 1.0},
      {'step': 15, 'valid/loss': 4.0, 'valid/bleu': 3.0, 'valid/f1': 3.0},
      {'step': 20, 'valid/loss': 3.0, 'valid/bleu': 3.0, 'valid/f1': 2.0})
with (run / 'metrics.jsonl').open('a') as metrics:
  metrics.write('{"step": 2')
""".replace("'valid/f1'", "'valid/f1'" if objective == 'valid/f1' else "'other'"),
    f'objective = {objective!r}\n',
  )
  assert (trial.value, trial.user_attrs['step']) == (value, step)
  worse = value + 1.0 if objective == 'valid/loss' else value - 1.0
  sweep.run_next(lambda trial: worse)
  # The plots of the page know the direction, too.
  assert sweep.best().number == sweep.study.best_trial.number == 0
