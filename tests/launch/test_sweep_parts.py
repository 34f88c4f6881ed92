"""The parts of a sweep: its journal, config files, the page, and workers that share a machine."""

import math
import pathlib
import runpy
import socket
import threading

import optuna
import pytest

from launch.sweeping import results, space, storage, study, trials, workers
from transformer import files
from transformer.commands.config_file import changed, config_file
from transformer.config import Config
from transformer.data.corpora import open_corpora
from transformer.errors import Preempted, UserError
from transformer.runs import lock as lock_module
from transformer.system.cuda_devices import visible_gpus

# ml_collections loads a config's file in a way that Python would have changed.
pytestmark = [pytest.mark.filterwarnings('ignore:the load_module:DeprecationWarning'),
              pytest.mark.filterwarnings('ignore::optuna.exceptions.ExperimentalWarning')]
GOOD = '''
def suggest(trial):
  return {'model.dropout': trial.suggest_float('dropout', 0.0, 0.5)}
'''


def test_every_config_comes_back_from_its_file(tmp_path):
  settings = {'model.key_dim': 7, 'data.train': ('a "b" \\', 'c'), 'data.train_weights': (0.5, 1.0),
              'optimizer.clip_norm': math.inf, 'model.tie_output': False, 'seed': 3,
              'optimizer.peak_learning_rate': 1 / 3, 'data.dir': "it's", 'model.num_layers': 6}
  config = changed(Config(), settings)
  (tmp_path / 'file.py').write_bytes(config_file('By """ and \\.\n\nEnds in "', config,
                                                 ['seed', 'model.num_layers']))
  found = runpy.run_path(str(tmp_path / 'file.py'))
  assert found['__doc__'] == 'By """ and \\.\n\nEnds in "'
  assert Config.from_dict(found['get_config']().to_dict()) == config
  lines = (tmp_path / 'file.py').read_text().splitlines()
  first = lines.index('  # The searched settings.')
  assert lines[first + 1:first + 3] == ['  config.seed = 3', '  config.model.num_layers = 6']
  assert sum('num_layers' in line for line in lines) == 1


@pytest.mark.parametrize(('number', 'cores', 'gpus', 'shares'), [
    (1, 4, None, [([0, 1, 2, 3], None, None)]),
    (2, 5, None, [([0, 1], None, None), ([2, 3, 4], None, None)]),
    (3, 2, None, [([0], None, None), ([1], None, None), ([0], None, None)]),
    (2, 2, '3,5,6,7', [([0], '3,5', None), ([1], '6,7', None)]),
    (3, 3, '4,5', [([0], '4', '0.450'), ([1], '5', '0.450'), ([2], '4', '0.450')]),
    (1, 1, '', [([0], None, None)]),
    (2, 2, '-1', [([0], None, None), ([1], None, None)]),
    (1, 1, '5, -1,6', [([0], '5', None)]),
])
def test_workers_share_a_machine(number, cores, gpus, shares):
  environment = {} if gpus is None else {'CUDA_VISIBLE_DEVICES': gpus}
  if gpus is None and visible_gpus({}):
    pytest.skip('this machine has GPUs')
  for worker, (own, gpu, memory) in enumerate(shares):
    part, changes = workers.share(worker, number, range(cores), environment)
    assert part == set(own)
    assert changes.get('CUDA_VISIBLE_DEVICES') == gpu
    assert changes.get('XLA_PYTHON_CLIENT_MEM_FRACTION') == memory


@pytest.fixture
def begin(tmp_path):
  """(text of a search space, trials, changes to the config) -> a sweep, always in one directory."""
  def begin(text=GOOD, number=3, **changes):
    (tmp_path / 'space.py').write_text(text)
    (tmp_path / 'sweep').mkdir(exist_ok=True)
    sweep = study.Sweep(tmp_path / 'sweep', space.load(str(tmp_path / 'space.py')),
                          changed(Config(), changes), number)
    sweep.begin()
    return sweep

  return begin


@pytest.fixture(autouse=True)
def quiet():
  before = optuna.logging.get_verbosity()
  optuna.logging.set_verbosity(optuna.logging.ERROR)
  yield
  optuna.logging.set_verbosity(before)


def test_a_directory_of_another_sweep_is_refused(begin, tmp_path):
  begin()
  assert begin(number=2).left() == 2 and begin(number=4).left() == 4
  with pytest.raises(UserError, match=r'another sweep: train.steps was 100000, is 7; choose'):
    begin(**{'train.steps': 7})
  with pytest.raises(UserError, match=r'another sweep: the search space has changed; choose'):
    begin(GOOD.replace('0.5', '0.6'))
  path = tmp_path / 'sweep' / storage.JOURNAL
  lines = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(b''.join([lines[0], b'{]\n', *lines[1:]]))
  with pytest.raises(UserError, match=r'journal.log should hold .* is damaged: '):
    begin()
  path.unlink()
  with pytest.raises(UserError, match=r'is not empty and holds no sweep; choose'):
    begin()


def test_what_changes_no_trial_may_change(begin):
  begin()
  other = '"""What is drawn."""\n# A comment.\n' + GOOD.replace(
      '\n  return', '\n  """Draws."""\n  return').replace("'", '"').replace(', 0.5', ',\n0.50')
  assert begin(other, **{'train.keep': 1, 'decode.beam_size': 9}).study.user_attrs['about'][
      'space'] == other


def test_data_may_move_if_they_are_the_same(begin, tmp_path):
  for place, last in (('old', 'c'), ('moved', 'c'), ('other', 'd')):
    (tmp_path / place).mkdir()
    for name in ('train.en', 'train.fr', 'valid.en', 'valid.fr'):
      (tmp_path / place / name).write_text(f'a\nb\n{last}\n')

  def begin_in(place):
    return begin(**{'data.source': 'text', 'data.valid': 'valid', 'data.dir': str(
        tmp_path / place)})

  sweep = begin_in('missing')
  sweep = begin_in('old')  # Nothing was trained before.

  def train(trial):
    trial.set_user_attr('settings', {'model.dropout': 0.2})
    return 1.0

  sweep.run_next(train)
  with pytest.raises(UserError, match=r'data\.dir was .*old., is .*moved'):
    begin_in('moved')  # What it was trained on is not known here.
  run = tmp_path / 'sweep' / 'trials' / '0'
  run.mkdir()
  files.write_sealed(run / 'run.json', {'data': {
      'vocabulary': '7', **open_corpora(sweep.config.data).fingerprints()}})
  with pytest.raises(UserError, match=r'data\.dir was .*old., is .*other'):
    begin_in('other')
  assert begin_in('moved').config.data.dir.endswith('moved')
  (tmp_path / 'old' / 'train.en').unlink()
  begin_in('moved')  # Its new place is known.


def test_a_killed_writers_lock_of_the_journal_expires(tmp_path, monkeypatch):
  monkeypatch.setattr(storage, 'KILLED_SECONDS', 3)
  monkeypatch.chdir(tmp_path)
  path = pathlib.Path(storage.JOURNAL)
  optuna.create_study(storage=storage.open_journal(path), study_name='a')
  storage.JournalLock(path).acquire()  # And never released.
  writes = threading.Thread(target=optuna.create_study, daemon=True, kwargs={
      'storage': storage.open_journal(path), 'study_name': 'b'})
  before = path.read_bytes()
  writes.start()
  writes.join(1.0)
  assert writes.is_alive() and path.read_bytes() == before
  writes.join(30.0)
  assert not writes.is_alive() and path.read_bytes().startswith(before + b'{')


@pytest.mark.parametrize('rest', [b'{"op_code":4,"wor', b'{', b'\xff' * 5000])
def test_an_incomplete_line_in_a_journal_is_dropped(tmp_path, rest):
  path = tmp_path / storage.JOURNAL
  one, other = storage.open_journal(path), storage.open_journal(path)
  optuna.create_study(storage=one, study_name='a')
  with path.open('ab') as file:
    file.write(rest)  # By a machine that went down.
  assert optuna.get_all_study_names(other) == ['a']
  optuna.create_study(storage=other, study_name='b')
  optuna.create_study(storage=one, study_name='c')
  for journal in (one, other, storage.open_journal(path)):
    assert optuna.get_all_study_names(journal) == ['a', 'b', 'c']


class Killed(BaseException):
  """Stands for a kill in the middle of a trial: Optuna catches only exceptions."""


def kill(_):
  raise Killed


def complete(trial):
  return trial.suggest_float('dropout', 0.0, 0.5)


def run(sweep, end=complete):
  """Ends all free trials by `end`, without training; returns their parameters by number."""
  drawn = {}
  while (trial := sweep.run_next(end)) is not None:
    assert trial.number not in drawn
    drawn[trial.number] = trial.params
  return drawn


def test_a_trial_on_another_host_is_left_to_it_as_long_as_others_wait(begin, tmp_path, monkeypatch):
  sweep = begin()
  with monkeypatch.context() as patch, pytest.raises(Killed):
    patch.setattr(socket, 'gethostname', lambda: 'elsewhere')
    sweep.run_next(kill)
  lock = tmp_path / 'sweep' / 'claims' / '0' / 'lock.json'
  lock.parent.mkdir(exist_ok=True)
  lock.write_text('{"host": "elsewhere", "process": 1, "machine": "another", "began": 1}')
  waited = []
  monkeypatch.setattr(lock_module.time, 'sleep', waited.append)
  assert [sweep.run_next(complete).number for _ in range(2)] == [1, 2] and not waited

  def wait(seconds):
    lock.touch()  # The heartbeat of its worker.

  monkeypatch.setattr(lock_module.time, 'sleep', wait)
  assert sweep.run_next(complete) is None and sweep.left() == 1
  lock.unlink()  # Its worker is gone.
  assert sweep.run_next(complete).number == 0


def test_what_a_trial_draws_does_not_depend_on_interruptions(begin, tmp_path):
  whole = run(begin(number=14))
  assert sorted(whole) == list(range(14))
  assert len({params['dropout'] for params in whole.values()}) == 14
  (tmp_path / 'sweep').rename(tmp_path / 'whole')

  def end(trial):
    value = complete(trial)
    if trial.number == 12:
      raise kind
    return value

  for kind in (Killed, UserError, Preempted):
    with pytest.raises(kind):
      run(begin(number=14), end)
  assert begin(number=14).left() == 2
  assert sorted(run(begin(number=14))) == [12, 13]
  assert [trial.params for trial in begin(number=14).all()] == [*whole.values()]


def test_a_full_disk_leaves_a_trial_unfinished(begin, monkeypatch):
  def full(*_):
    raise UserError('no room')

  sweep = begin()
  monkeypatch.setattr(trials.files, 'write', full)
  with pytest.raises(UserError, match='no room'):
    sweep.run_next(lambda trial: trials.run_trial(sweep, trial, [], []))
  assert sweep.left() == 3


def test_a_worker_whose_first_trials_fail_at_once_for_one_reason_stops(begin, monkeypatch):
  def failing(reason, **attributes):
    def run_trial(sweep, trial, children, signals):
      for name, value in attributes.items():
        trial.set_user_attr(name, value)
      trial.set_user_attr('reason', reason.format(trial.number, 'ab'[trial.number % 2]))
      return math.nan
    return run_trial

  monkeypatch.setattr(workers, 'run_trial', failing('no room for {0} bytes', seconds=1.0))
  with pytest.raises(UserError, match=r'first 4 trials .*, for one reason: no room for # bytes; '):
    workers.work(begin(number=9), False, '')
  assert begin(number=9).left() == 5
  # Two reasons, and settings that the config refuses.
  for number, run_trial in (9, failing('no {1}', seconds=1.0)), (18, failing('it is refused')):
    monkeypatch.setattr(workers, 'run_trial', run_trial)
    sweep = begin(number=number)
    workers.work(sweep, False, '')
    assert not sweep.left()


@pytest.fixture
def train(begin, tmp_path, monkeypatch):
  """(code of train.py, more of the search space) -> a sweep after one trial, and the trial."""
  def train(code, text='', **changes):
    (tmp_path / 'train.py').write_text(PROGRAM + code)
    monkeypatch.setattr(trials, 'ROOT', tmp_path)
    monkeypatch.setenv('PYTHONPATH', str(trials.Path(__file__).parents[2]))
    sweep, children = begin(GOOD + text, **changes), []
    return sweep, sweep.run_next(lambda trial: trials.run_trial(sweep, trial, children, []))

  return train


PROGRAM = '''
import json, os, pathlib, sys, time
from transformer import files
run = pathlib.Path(sys.argv[2].partition('=')[2])
run.mkdir(exist_ok=True)
files.write_sealed(run / 'run.json', {'commit': 'c0ffee'})


def write(*rows):
  with (run / 'metrics.jsonl').open('a') as metrics:
    metrics.writelines(json.dumps(row) + '\\n' for row in rows)


'''


def test_a_trial_says_how_far_it_is(train, monkeypatch, caplog):
  monkeypatch.setattr(trials, '_QUIET_SECONDS', 0.0)
  caplog.set_level('INFO')
  train("""
time.sleep(1)
write({'step': 100, 'valid/bleu': 12.345, 'valid/loss': 2.0})
print('I1 x.py:1] step 150/400  loss 2.5  03:20 left', 'another line', sep='\\n', flush=True)
time.sleep(1)
""")
  assert 'trial 0: no step is logged yet' in caplog.messages
  assert 'trial 0: step 150/400  loss 2.5  03:20 left  valid/bleu 12.35' in caplog.messages


@pytest.mark.parametrize(('changes', 'pruned'), [
    ({'train.steps': 20}, True), ({'train.steps': 15}, False),
    ({'train.steps': 30, 'train.patience': 2}, False),
    ({'train.steps': 30, 'train.patience': 3}, True),
    # By the loss, the first evaluation stays the best, too, and ties do not count as better.
    ({'train.steps': 30, 'train.patience': 2, 'train.best_by': 'loss'}, False)])
def test_the_pruner_is_not_asked_about_the_last_evaluation_of_a_run(train, changes, pruned):
  """It would end each trial at step 15, for a BLEU of 2."""
  _, trial = train("""
write(*({'step': step, 'valid/bleu': bleu, 'valid/loss': 2.0}
        for step, bleu in ((5, 4.0), (10, 3.0), (15, 2.0))))
""", 'import optuna\ndef pruner():\n  return optuna.pruners.ThresholdPruner(lower=2.5)\n',
                   **changes)
  state = optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
  assert (trial.state, trial.user_attrs['step']) == (state, 15 if pruned else 5)
  assert [*trial.intermediate_values] == [5, 10, 15]


def test_a_sweep_from_before_a_setting_goes_on_with_its_earlier_value(begin):
  sweep = begin()
  about = sweep.study.user_attrs['about']
  del about['settings']['train.label_smoothing']
  sweep.study.set_user_attr('about', about)
  begin()
  with pytest.raises(UserError, match=r'train\.label_smoothing was 0\.1, is 0\.3'):
    begin(**{'train.label_smoothing': 0.3})


@pytest.mark.parametrize('seed', ['', ', seed=seed'])
def test_a_grid_is_tried_once_and_ends(begin, seed):
  grid = f'optuna.samplers.GridSampler({{"dropout": [0.1, 0.2, 0.3, 0.4]}}{seed})'
  sweep = begin(f'{GOOD}import optuna\ndef sampler(seed):\n  return {grid}\n', 9)
  drawn = run(sweep)
  assert sorted(params['dropout'] for params in drawn.values()) == [0.1, 0.2, 0.3, 0.4]
  assert sweep.left() == 0


@pytest.mark.parametrize(('code', 'reason'), [
    ("sys.exit('I1 a\\nerror: the first\\nerror: the last\\nI2 b')", 'the last'),
    ("raise ValueError('x')", 'ValueError: x'), ('sys.exit(1)', 'train.py printed nothing'),
    ("print('error: x', flush=True); os.kill(os.getpid(), 9)",
     'train.py was ended by SIGKILL, perhaps out of memory'),
    ("print('error: x', flush=True); os.kill(os.getpid(), 11)", 'train.py was ended by SIGSEGV'),
    ("write({'step': 5, 'valid/bleu': None, 'valid/loss': None})",
     'valid/bleu was never a finite number')])
def test_the_reason_of_a_failure(train, code, reason):
  sweep, trial = train(code)
  assert (trial.state, trial.user_attrs['reason']) == (optuna.trial.TrialState.FAIL, reason)
  assert sweep.left() == 2


@pytest.mark.parametrize(('objective', 'value', 'step'), [
    ('valid/loss', 2.0, 10), ('valid/bleu', 3.0, 20), ('valid/f1', 3.0, 15)])
def test_the_best_evaluation_counts_and_what_is_no_number_never_does(
    train, objective, value, step):
  sweep, trial = train("""
write({'step': 5, 'train/loss': 1.0},
      {'step': 5, 'valid/loss': None, 'valid/bleu': None, 'valid/f1': None},
      {'step': 10, 'valid/loss': 2.0, 'valid/bleu': 1.0, 'valid/f1': 1.0},
      {'step': 15, 'valid/loss': 4.0, 'valid/bleu': 3.0, 'valid/f1': 3.0},
      {'step': 20, 'valid/loss': 3.0, 'valid/bleu': 3.0, 'valid/f1': 2.0})
with (run / 'metrics.jsonl').open('a') as metrics:
  metrics.write('{"step": 2')
""".replace("'valid/f1'", "'valid/f1'" if objective == 'valid/f1' else "'other'"),
                       f'objective = {objective!r}\n')
  assert (trial.value, trial.user_attrs['step']) == (value, step)
  worse = value + 1.0 if objective == 'valid/loss' else value - 1.0
  sweep.run_next(lambda trial: worse)
  # The plots of the page know the direction, too.
  assert sweep.best().number == sweep.study.best_trial.number == 0


def test_a_sweep_with_few_results_has_a_page(begin, tmp_path):
  sweep = begin(number=4)
  texts = []
  for state in ('none', 'complete'):
    results.write(sweep, '<command>')
    texts.append((tmp_path / 'sweep' / 'sweep.html').read_text('utf-8'))
    assert ('4 trials: 4 waiting; none is complete.' in texts[-1]) == (state == 'none')
    assert '<pre>&lt;command&gt;</pre>' in texts[-1] and '<h2>Parameter imp' in texts[-1]
    sweep.run_next(train_nothing)


def train_nothing(trial):
  trial.set_user_attr('settings', {'model.dropout': trial.suggest_float('dropout', 0.0, 0.5)})
  for name, value in (('commit', 'c0ffee'), ('step', 5)):
    trial.set_user_attr(name, value)
  return 1.0
