"""The parts of a sweep: its journal, config files, the page, and workers that share a machine."""

import contextlib
import json
import math
import pathlib
import runpy
import threading
import time
import types

import optuna
import pytest

from launch.sweeping import page, processes, results, space, storage, study, trials, workers
from transformer import files
from transformer.commands.config_file import changed, config_file
from transformer.config import Config
from transformer.data.corpora import open_corpora
from transformer.errors import UserError
from transformer.system.cuda_devices import visible_gpus
from transformer.training.config import TrainConfig

# ml_collections loads a config's file in a way that Python would have changed.
pytestmark = pytest.mark.filterwarnings('ignore:the load_module:DeprecationWarning')
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


@pytest.mark.parametrize(('workers', 'cores', 'gpus', 'shares'), [
    (1, 4, None, [([0, 1, 2, 3], None, None)]),
    (2, 5, None, [([0, 1], None, None), ([2, 3, 4], None, None)]),
    (3, 2, None, [([0], None, None), ([1], None, None), ([0], None, None)]),
    (2, 2, '3,5,6,7', [([0], '3,5', None), ([1], '6,7', None)]),
    (3, 3, '4,5', [([0], '4', '0.450'), ([1], '5', '0.450'), ([2], '4', '0.450')]),
    (1, 1, '', [([0], None, None)]),
    (2, 2, '-1', [([0], None, None), ([1], None, None)]),
    (1, 1, '5, -1,6', [([0], '5', None)]),
])
def test_workers_share_a_machine(workers, cores, gpus, shares):
  environment = {} if gpus is None else {'CUDA_VISIBLE_DEVICES': gpus}
  if gpus is None and visible_gpus({}):
    pytest.skip('this machine has GPUs')
  for worker, (own, gpu, memory) in enumerate(shares):
    found, changes = processes.share(worker, workers, range(cores), environment)
    assert found == set(own)
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
  assert len(begin(number=2).all()) == 3 and len(begin(number=4).all()) == 4
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
  with contextlib.ExitStack() as stack:
    trial = sweep.claim(stack)
    trial.set_user_attr('settings', {'model.dropout': 0.2})
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
  monkeypatch.setattr(storage, '_KILLED_SECONDS', 3)
  monkeypatch.chdir(tmp_path)
  pathlib.Path('sweep').mkdir()
  path = pathlib.Path('sweep', storage.JOURNAL)
  assert storage.open_journal(path)._backend._lock.acquire()  # And never released.
  writes = threading.Thread(target=storage.open_journal(path)._backend.append_logs, args=([{}],),
                            daemon=True)
  writes.start()
  writes.join(1.0)
  assert writes.is_alive() and path.read_bytes() == b''
  writes.join(30.0)
  assert not writes.is_alive() and path.read_bytes() == b'{}\n'


@pytest.mark.parametrize('left', [b'{"op_code":4,"wor', b'{', b'\xff' * 5000])
def test_an_incomplete_line_in_a_journal_is_dropped(tmp_path, left):
  path = tmp_path / storage.JOURNAL
  one, other = storage.open_journal(path)._backend, storage.open_journal(path)._backend
  one.append_logs([{'a': 1}, {'b': 2}])
  with path.open('ab') as file:
    file.write(left)  # By a machine that went down.
  assert list(other.read_logs(0)) == [{'a': 1}, {'b': 2}]
  other.append_logs([{'c': 3}])
  one.append_logs([{'d': 4}])
  assert list(one.read_logs(1)) == list(other.read_logs(1)) == [{'b': 2}, {'c': 3}, {'d': 4}]


def test_a_trial_that_another_host_is_claiming_is_left_to_it(begin, tmp_path):
  sweep = begin()
  for number, state in ((0, 'WAITING'), (1, 'RUNNING')):
    with contextlib.ExitStack() as stack:
      sweep.claim(stack).set_user_attr('host', 'elsewhere')
    if state == 'WAITING':
      sweep.study._storage.set_trial_state_values(number, optuna.trial.TrialState.WAITING)
    lock = tmp_path / 'sweep' / 'claims' / str(number) / 'lock.json'
    lock.write_text('{"host": "elsewhere", "process": 1, "machine": "another", "began": 1}')
  with contextlib.ExitStack() as stack:
    began = time.monotonic()
    assert sweep.claim(stack).number == 2
    assert time.monotonic() - began < 60


def run(sweep, end):
  """Ends all free trials by `end`, without training; returns their parameters by number."""
  drawn = {}
  while True:
    with contextlib.ExitStack() as stack:
      trial = sweep.claim(stack)
      if trial is None:
        return drawn
      space.draw(sweep.space, trial)
      assert trial.number not in drawn
      drawn[trial.number] = trial.params
      end(sweep, trial)


def test_what_a_trial_draws_does_not_depend_on_interruptions(begin, tmp_path):
  def complete(sweep, trial):
    sweep.finish(trial, optuna.trial.TrialState.COMPLETE, trial.params['dropout'])

  whole = run(begin(number=14), complete)
  assert sorted(whole) == list(range(14))
  assert len({each['dropout'] for each in whole.values()}) == 14
  (tmp_path / 'sweep').rename(tmp_path / 'whole')

  class Killed(Exception):
    """Stands for a kill in the middle of a trial."""

  def killed(sweep, trial):
    if trial.number == 12:
      raise Killed
    complete(sweep, trial)

  with pytest.raises(Killed):
    run(begin(number=14), killed)
  rest = run(begin(number=14), complete)
  assert sorted(rest) == [12, 13]
  assert [each.params for each in begin(number=14).all()] == [*whole.values()]


def test_a_full_disk_leaves_a_trial_unfinished(begin, monkeypatch):
  def full(*_):
    raise UserError('no room')

  sweep = begin()
  monkeypatch.setattr(trials.files, 'write', full)
  with contextlib.ExitStack() as stack, pytest.raises(UserError, match='no room'):
    trials.run_trial(sweep, sweep.claim(stack), None)
  assert [each.number for each in sweep.unfinished()] == [0, 1, 2]


def test_a_worker_whose_first_trials_fail_at_once_for_one_reason_stops(begin, monkeypatch):
  def failing(reason, **attributes):
    def run_trial(sweep, trial, stop):
      for name, value in attributes.items():
        trial.set_user_attr(name, value)
      trials._fail(sweep, trial, reason.format(trial.number, 'ab'[trial.number % 2]))
    return run_trial

  monkeypatch.setattr(workers, 'run_trial', failing('no room for {0} bytes', seconds=1.0))
  with pytest.raises(UserError, match=r'first 4 trials .*, for one reason: no room for # bytes; '):
    workers.work(begin(number=9), [], False, '')
  assert len(begin(number=9).unfinished()) == 5
  # Two reasons, and settings that the config refuses.
  for number, run_trial in (9, failing('no {1}', seconds=1.0)), (18, failing('it is refused')):
    monkeypatch.setattr(workers, 'run_trial', run_trial)
    sweep = begin(number=number)
    workers.work(sweep, [], False, '')
    assert not sweep.unfinished()


def test_a_trial_says_every_half_minute_how_far_it_is(tmp_path, monkeypatch):
  now, said = 1000.0, []
  monkeypatch.setattr(trials.time, 'monotonic', lambda: now)
  monkeypatch.setattr(trials.logging, 'info', lambda text, *each: said.append(text % each))
  progress = trials.Progress(7, tmp_path, 'valid/bleu', 400)
  rows = {1040.0: {'step': 50, 'train/loss': 3.21}, 1080.0: {'step': 100, 'valid/bleu': 12.345},
          1100.0: {'step': 100, 'train/loss': None}, 1110.0: {'step': 150, 'train/loss': 2.5}}
  while now < 1130.0:
    now += 5.0
    if now in rows:
      with (tmp_path / 'metrics.jsonl').open('a') as metrics:
        metrics.write(json.dumps(rows[now]) + '\n')
    progress.log()
  assert said == ['trial 7: no step is logged yet', 'trial 7: step 50/400  train/loss 3.21',
                  'trial 7: step 100/400  train/loss 3.21  valid/bleu 12.35  05:00 left',
                  'trial 7: step 150/400  train/loss 2.5  valid/bleu 12.35  03:20 left']


def test_the_pruner_is_not_asked_about_the_last_evaluation_of_a_run():
  rows = [{'step': step, 'valid/bleu': bleu, 'valid/loss': 2.0}
          for step, bleu in ((5, 4.0), (10, 3.0), (15, 2.0), (20, 1.0))]

  def pruned_at(train, seen=()):
    reported = []
    trial = types.SimpleNamespace(report=lambda value, step: reported.append(step),
                                  should_prune=lambda: len(reported) == 3)
    return trials._report(trial, rows, 'valid/bleu', train, set(seen))

  assert pruned_at(TrainConfig(steps=20)) == 15
  assert pruned_at(TrainConfig(steps=15)) is None
  assert pruned_at(TrainConfig(steps=30, patience=2)) is None
  assert pruned_at(TrainConfig(steps=30, patience=3)) == 15
  # By the loss, the first evaluation stays the best, too, and ties do not count as better.
  assert pruned_at(TrainConfig(steps=30, patience=2, best_by='loss')) is None


def test_a_sweep_from_before_a_setting_goes_on_with_its_earlier_value(begin):
  sweep = begin()
  about = sweep.study.user_attrs['about']
  del about['settings']['train.label_smoothing']
  sweep.study.set_user_attr('about', about)
  begin()
  with pytest.raises(UserError, match=r'train\.label_smoothing was 0\.1, is 0\.3'):
    begin(**{'train.label_smoothing': 0.3})


def test_a_grid_ends_when_all_of_it_was_tried(begin):
  sweep = begin(GOOD + 'import optuna\ndef sampler(seed):\n'
                '  return optuna.samplers.GridSampler({"dropout": [0.1, 0.2, 0.3, 0.4]})\n', 9)

  def complete(sweep, trial):
    sweep.finish(trial, optuna.trial.TrialState.COMPLETE, 1.0)

  drawn = run(sweep, complete)
  assert sorted(each['dropout'] for each in drawn.values()) == [0.1, 0.2, 0.3, 0.4]
  assert sweep.unfinished() == []


@pytest.mark.parametrize(('log', 'status', 'reason'), [
    ('I1 a\nerror: the first\nerror: the last\nI2 b\n', 1, 'the last'),
    ('Traceback\n  here\nValueError: x\n', 1, 'ValueError: x'), ('', 1, 'train.py printed nothing'),
    ('error: x\n', -9, 'train.py was ended by SIGKILL, perhaps out of memory'),
    ('error: x\n', -11, 'train.py was ended by SIGSEGV')])
def test_the_reason_of_a_failure(tmp_path, log, status, reason):
  (tmp_path / 'log').write_text(log)
  assert trials._reason(status, tmp_path / 'log') == reason


def test_the_best_evaluation_counts_and_what_is_no_number_never_does(begin, tmp_path):
  metrics = tmp_path / 'metrics.jsonl'
  assert trials.rows_with(tmp_path, 'valid/loss') == []
  rows = [{'step': 5, 'valid/loss': None, 'valid/bleu': None},
          {'step': 10, 'valid/loss': 2.0, 'valid/bleu': 1.0},
          {'step': 15, 'valid/loss': 4.0, 'valid/bleu': 3.0},
          {'step': 20, 'valid/loss': 3.0, 'valid/bleu': 3.0}]
  metrics.write_text(''.join(json.dumps(row) + '\n' for row in [{'step': 5, 'train/loss': 1.0},
                                                                *rows]) + '{"step": 2')
  found = trials.rows_with(tmp_path, 'valid/loss')
  assert all(math.isnan(found[0][name]) for name in ('valid/loss', 'valid/bleu'))
  assert found[1:] == rows[1:]
  trees = [{**row, 'valid/f1': f1}
           for row, f1 in zip(found, (math.nan, 1.0, 3.0, 2.0), strict=True)]
  for objective, rows, value, step in (
      ('valid/loss', found, 2.0, 10), ('valid/bleu', found, 3.0, 20), ('valid/f1', trees, 3.0, 15)):
    sweep = begin(GOOD + f'objective = {objective!r}\n')
    # The second trial stops early, at a larger loss and a lower score than the first's best.
    worse = [row for row in rows if row['step'] in (5, 15 if objective == 'valid/loss' else 10)]

    def complete(sweep, trial, evaluations=(rows, worse, rows[:1])):
      trials._complete(sweep, trial, evaluations[trial.number])

    run(sweep, complete)
    best, second, failed = sweep.all()
    assert sweep.best().number == 0 and (best.value, best.user_attrs['step']) == (value, step)
    assert (second.value < value) == (objective != 'valid/loss')
    assert sweep.study.best_trial.number == 0  # The plots of the page know the direction, too.
    assert failed.user_attrs['reason'] == f'{objective} was never a finite number'
    (tmp_path / 'sweep').rename(tmp_path / objective.replace('/', '-'))


def test_a_sweep_without_results_has_a_page(begin):
  sweep = begin()
  header, *rows = results.table(sweep)
  text = page.page(sweep.study, 'valid/bleu', header, rows, results.summary(sweep),
                   {'<title>': '<&>'}).decode()
  assert '3 trials: 3 waiting; none is complete.' in text
  assert 'No trial is complete.' in text and '<pre>&lt;&amp;&gt;</pre>' in text
