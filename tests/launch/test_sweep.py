"""The command of a sweep: kills, failures, pruning, workers, and the files that it writes.

All tests but one use a copy of the project whose train.py only writes metrics.
"""

import html
import json
import os
import re
import runpy
import signal

import pytest

from tests.launch import sweep_sandbox
from tests.launch.sweep_sandbox import ROOT, Sweep, rows_of
from tests.robustness.kill import differences
from transformer.config import flatten

pytestmark = pytest.mark.long


@pytest.fixture(scope='module')
def sandbox(tmp_path_factory):
  sandbox = tmp_path_factory.mktemp('sandbox')
  sweep_sandbox.build(sandbox)
  return sandbox


@pytest.fixture
def sweep_of(folder, tmp_path):
  """(root, file of a search space, flags …) -> a `Sweep` in a new directory."""
  made = []

  def make(root, searched, *flags):
    made.append(
      Sweep(
        root,
        tmp_path / 'sweep',
        f'--config={folder}/tiny.py',
        f'--search_space={searched}',
        *flags,
      )
    )
    return made[-1]

  yield make
  for sweep in made:
    sweep.close()


def test_trials_of_all_kinds_by_two_workers(sandbox, folder, sweep_of):
  sweep = sweep_of(
    sandbox,
    sandbox / 'space.py',
    '--trials=6',
    '--workers=2',
    '--keep_best=1',
    '--config.train.steps=10',
    '--config.train.grace_seconds=0.1',
    '--config.decode.beam_size=7',
  )
  sweep.start()
  printed = sweep.end(0)
  titles, rows = rows_of(printed)

  # Every trial is started once, by two workers.
  trials = sweep.workdir / 'trials'
  started = {
    number: (trials / str(number) / 'starts').read_text().split()
    for number in (0, 1, 3, 4, 5)
  }
  assert not (trials / '2').exists() and sorted(rows) == list(range(6))
  assert all(len(workers) == 1 for workers in started.values())
  assert len({workers[0] for workers in started.values()}) == 2

  # Failed trials have a reason, and have stopped nothing else.
  assert titles[:5] == ['trial', 'state', 'valid/bleu', 'step', 'time']
  assert rows[1][1] == 'failed' and rows[1][-1] == 'it broke on purpose'
  assert rows[2][1] == 'failed' and rows[2][-1].startswith(
    'num_heads must divide model_dim; got'
  )
  # The pruned trial was stopped before its end.
  assert rows[3][1:4] == ['pruned', '0.5', '5']
  assert len((trials / '3' / 'metrics.jsonl').read_text().splitlines()) == 1
  scales = {}
  for number in (0, 4, 5):
    config = runpy.run_path(str(trials / f'{number}.py'))['get_config']()
    scales[number] = config.optimizer.noam_scale
    assert rows[number][1:4] == [
      'complete',
      f'{config.optimizer.noam_scale * 10:.4g}',
      '10',
    ]
    assert config.decode.beam_size == 7 and config.data.dir == str(folder)

  best = max(scales, key=scales.get)
  assert [number for number, row in rows.items() if row[0].endswith('*')] == [best]
  assert [path.parent.name for path in trials.glob('*/checkpoints')] == [str(best)]
  assert 'kept' in rows[best] and all(
    'deleted' in rows[number] for number in {0, 3, 4, 5} - {best}
  )
  text = (sweep.workdir / 'best.py').read_text('utf-8')
  assert (
    text.partition('def get_config')[2]
    == (trials / f'{best}.py').read_text('utf-8').partition('def get_config')[2]
  )
  for fact in (
    f'Trial {best} of',
    f'valid/bleu {scales[best] * 10:.6g} at',
    'at step 10',
    f'--config={sweep.workdir}/best.py',
    'c0ffee',
  ):
    assert fact in text, text

  text = (sweep.workdir / 'sweep.html').read_text('utf-8')
  assert text.count('* plotly.js v') == 1 and ' src=' not in text.partition('<h1>')[2]
  for shown in (printed.rstrip('\n'), f'{sandbox}/space.py', sweep_sandbox.SPACE):
    assert html.escape(shown) in text
  for plot in (
    'optimization-history',
    'parameter-importances',
    'intermediate-values',
    'parallel-coordinates',
  ):
    drawn = re.search(rf'Plotly.newPlot\(\s*"{plot}",\s*\[\{{.*', text)
    assert drawn and drawn[0].count('"showSendToCloud": false') == 1, plot

  # The same command again does nothing.
  sweep.start()
  assert sweep.end(0) == printed
  assert (trials / '0' / 'starts').read_text().split() == started[0]


def test_kills_and_signals_keep_the_number_of_trials(sandbox, sweep_of):
  sweep = sweep_of(
    sandbox, sandbox / 'slow.py', '--trials=3', '--config.train.steps=20'
  )
  sweep.start()
  sweep.wait_for_report(0)
  sweep.kill('.', 'claims/0')  # train.py is then asked to stop, and takes its time.
  with (sweep.workdir / 'journal.log').open('ab') as journal:
    journal.write(b'{"op_code":4,"wor')  # A full disk leaves such a line.
  sweep.start()
  sweep.wait_for_report(2)  # The third record, after two of trial 0.
  sweep.process.terminate()
  assert sweep.end(75) == ''
  assert 'stopped by SIGTERM, 2 of 3 trials are left' in sweep.log
  sweep.start()
  _, rows = rows_of(sweep.end(0))
  assert sorted(rows) == [0, 1, 2]
  for number, starts in enumerate((2, 2, 1)):
    run = sweep.workdir / 'trials' / str(number)
    assert len((run / 'starts').read_text().split()) == starts
    assert 'error: ' not in run.with_name(f'{number}.log').read_text()
    config = runpy.run_path(f'{run}.py')['get_config']()
    metrics = [
      json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()
    ]
    assert [row['step'] for row in metrics] == [5, 10, 15, 20]
    assert rows[number][1:4] == [
      'complete',
      f'{config.optimizer.noam_scale * 20:.4g}',
      '20',
    ]
  assert len({row[2] for row in rows.values()}) == 3
  assert 'Traceback' not in sweep.log


def test_slurms_jobs_are_workers(sandbox, sweep_of, tmp_path, monkeypatch):
  for name, line in (
    (
      'sbatch',
      f'echo "$@" > {tmp_path}/submitted\n'
      'export SLURM_ARRAY_JOB_ID=1 SLURM_ARRAY_TASK_ID=0\n'
      'SLURM_JOB_ID=1 exec bash',
    ),
    ('srun', 'exec setsid "${@:2}"'),
    ('squeue', 'echo RUNNING 9:00'),
    ('scontrol', f'echo "$@" > {tmp_path}/requests'),
  ):
    (tmp_path / name).write_text(f'#!/bin/bash\n{line}\n')
    (tmp_path / name).chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
  sweep = sweep_of(
    sandbox,
    sandbox / 'jobs.py',
    '--trials=2',
    '--workers=1',
    '--slurm',
    '--config.train.steps=10',
    '--config.train.grace_seconds=1.0',
  )
  sweep.start()
  sweep.wait_for_report(0)
  # Before the time limit, Slurm sends the signal to the worker and to its whole group.
  os.killpg(sweep.holder_of('claims/0'), signal.SIGUSR1)
  assert sweep.end(0) == '' and (tmp_path / 'requests').read_text() == 'requeue 1_0\n'
  sweep.start()
  assert sweep.end(0) == '' and 'Traceback' not in sweep.log
  assert [
    len((sweep.workdir / 'trials' / number / 'starts').read_text().split())
    for number in '01'
  ] == [2, 1]
  assert not (sweep.workdir / 'trials' / '0' / 'hurried').exists()
  assert '--array=0-0' in (tmp_path / 'submitted').read_text()
  text = (sweep.workdir / 'sweep.html').read_text('utf-8')
  assert '2 trials: 2 complete; the best is trial ' in text
  assert '--workers=1' in text and '--worker=' not in text
  assert (sweep.workdir / 'best.py').exists() and (sweep.workdir / 'workers').is_dir()

  (tmp_path / 'submitted').unlink()
  sweep.start()
  _, rows = rows_of(sweep.end(0))
  assert [row[1] for row in rows.values()] == ['complete'] * 2
  assert not (tmp_path / 'submitted').exists()


def test_a_killed_trial_ends_like_a_separate_run_of_its_config(
  sandbox, sweep_of, train, tmp_path
):
  sweep = sweep_of(
    ROOT,
    sandbox / 'search.py',
    '--trials=1',
    '--config.train.steps=80',
    '--config.train.eval_every=10',
    '--config.train.log_every=10',
    '--config.train.checkpoint_every=10',
    '--config.optimizer.schedule=constant',
  )
  sweep.start()
  sweep.wait_for_report(0, step=10)
  sweep.kill('.', 'claims/0', 'trials/0')
  sweep.start()
  _, rows = rows_of(sweep.end(0))
  run, best = sweep.workdir / 'trials' / '0', sweep.workdir / 'best.py'
  about = json.loads((run / 'run.json').read_text('utf-8'))
  assert len(about['resumed']) == 1 and rows[0][1] == 'complete'

  status, _, err = train(f'--config={best}', f'--workdir={tmp_path}/alone')
  assert status == 0, err
  assert differences(tmp_path / 'alone', run) == []
  losses = [
    row['valid/loss']
    for row in map(
      json.loads, (tmp_path / 'alone' / 'metrics.jsonl').read_text().splitlines()
    )
    if 'valid/loss' in row
  ]
  assert len(losses) == 8 and f'{min(losses):.4g}' == rows[0][2]
  settings = json.loads((tmp_path / 'alone' / 'config.json').read_text('utf-8'))
  rate = flatten(settings)['optimizer.peak_learning_rate']
  assert f'{rate:.4g}' == rows[0][5] and f'= {rate!r}  # ' in best.read_text('utf-8')

  # The trial may run longer, and the sweep still knows its result.
  status, _, err = train(f'--workdir={run}', '--config.train.steps=90')
  assert status == 0, err
  assert json.loads((run / 'metrics.jsonl').read_text().splitlines()[-1])['step'] == 90
  sweep.start()
  assert rows_of(sweep.end(0))[1] == rows
