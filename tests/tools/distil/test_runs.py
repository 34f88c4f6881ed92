"""Runs that learn from teachers, word by word, as the commands start them."""

import json
import re
import shutil

import jax
import numpy as np
import pytest

from tests.command_fixtures import ENGLISH
from transformer import files
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.runs.loading import load_run

OBJECTIVE = 'transformer.tools.distil.objective:distillation'
DISTILLATION = f'--config.train.objective={OBJECTIVE}'


@pytest.mark.long
def test_a_run_learns_from_teachers_and_resumes_with_the_same_ones(
  train, folder, trained, tmp_path
):
  teacher, run = tmp_path / 'teacher', tmp_path / 'run'
  shutil.copytree(trained, teacher)

  def flags(*teachers, steps=1):
    return (
      f'--config={folder}/tiny.py',
      f'--workdir={run}',
      f'--config.train.steps={steps}',
      '--config.train.log_every=1',
      DISTILLATION,
      f'--config.train.objective_runs={",".join(map(str, teachers))}',
    )

  status, _, err = train(*flags(teacher, trained))
  assert status == 0, err
  about = files.read_sealed(run / 'run.json', 'the record')
  plain = files.read_sealed(trained / 'run.json', 'the record')
  assert [teacher['steps'] for teacher in about['frozen']] == [
    load_run(trained).checkpoint_steps
  ] * 2
  # Each teacher takes a third of the FLOPs of a training step.
  assert about['flops_per_step'] == pytest.approx(plain['flops_per_step'] * 5 / 3)
  assert plain['frozen'] == []

  def losses(workdir):
    return [
      json.loads(line)['train/loss']
      for line in (workdir / 'metrics.jsonl').read_text().splitlines()
      if 'train/loss' in line
    ]

  # A teacher may have moved. The run of two steps equals one that was not interrupted.
  teacher.rename(tmp_path / 'moved')
  status, _, err = train(*flags(tmp_path / 'moved', trained, steps=2))
  assert status == 0, err
  whole = tmp_path / 'whole'
  status, _, err = train(
    *flags(tmp_path / 'moved', trained, steps=2), f'--workdir={whole}'
  )
  assert status == 0 and len(losses(whole)) == 2, err
  assert losses(run) == losses(whole)
  alone, again = (load_run(workdir).params for workdir in (run, whole))
  assert all(map(np.array_equal, jax.tree.leaves(alone), jax.tree.leaves(again)))
  # A finished run needs no teachers; a resumed one needs the same, or their moved folders.
  status, _, err = train(*flags('/gone', '/gone', steps=2))
  assert status == 0 and 'the run is done' in err, err
  message = train.rejects_alike(*flags(trained, steps=3))
  assert re.search(
    r'was started with a different train\.objective_runs.*choose a different --workdir',
    message,
  )


def test_teachers_that_do_not_fit_are_rejected_before_anything_is_written(
  train, folder, trained, change_settings, tmp_path
):
  other = Vocabulary.train(ENGLISH * 3, 290)
  other.save(tmp_path / 'other.model')
  config = (f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
  learned = tmp_path / 'learned'
  learned.mkdir()
  shutil.copy(trained / 'config.json', learned)
  change_settings(learned, model__positions='learned', model__max_positions=67)
  for flags, fact in (
    ([DISTILLATION, '--config.train.objective_runs=/nowhere'], '/nowhere holds no run'),
    (
      [
        DISTILLATION,
        f'--config.train.objective_runs={trained}',
        '--config.data.vocabulary_size=290',
        f'--config.data.vocabulary={tmp_path}/other.model',
      ],
      f'must have the vocabulary of this run; it has a different one; set --config.data.vocabulary='
      f'{trained}/vocabulary.model, or',
    ),
    (
      [
        DISTILLATION,
        f'--config.train.objective_runs={learned}',
        '--config.data.max_length=80',
      ],
      'must have positions for data.max_length=80 tokens; it has model.max_positions=67',
    ),
    ([DISTILLATION], 'set train.objective_runs to the directories'),
    *(
      (
        [
          f'--config.train.objective={(OBJECTIVE, *numbers)}',
          f'--config.train.objective_runs={trained}',
        ],
        fact,
      )
      for numbers, fact in (
        (
          (0.0,),
          'teacher_weight of distillation must be above 0 and at most 1; got 0.0',
        ),
        ((0.5, 0), 'temperature of distillation must be above 0 and finite; got 0.0'),
      )
    ),
  ):
    assert fact in train.rejects_alike(*config, *flags)
  assert not (tmp_path / 'run').exists()
