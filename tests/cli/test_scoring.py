"""Scores go to the chosen folder, lines keep their numbers, and a diverged run is named."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.runs.loading import load_run, save_run


@pytest.fixture(scope='module')
def change_params(trained, tmp_path_factory):
  """(function of a parameter) -> a run at step 7 with changed parameters of the trained run."""

  def change(function):
    workdir = tmp_path_factory.mktemp('changed')
    run = load_run(trained)
    save_run(
      workdir, run.config, run.vocabulary, jax.tree.map(function, run.params), [7]
    )
    return workdir

  return change


def test_parameters_that_are_not_finite_are_rejected(change_params):
  workdir = change_params(lambda leaf: jnp.where(leaf == leaf.max(), jnp.nan, leaf))
  with pytest.raises(
    UserError,
    match=f'^{workdir}, step 7, has diverged: the parameter .* is not '
    f'finite; choose an earlier checkpoint',
  ):
    load_run(workdir)


def words(sources, translations, references):
  """A custom metric: the words of each translation."""
  return [len(line.split()) for line in translations]


def leave(sources, translations, references):
  """A custom metric that ends the process that calls it."""
  raise SystemExit('no more memory')


def test_a_custom_metric_that_exits_affects_no_other_score(evaluate, trained, tmp_path):
  status, out, err = evaluate(
    f'--workdir={trained}',
    f'--results={tmp_path}',
    '--output=-',
    '--beam_size=1',
    '--bleu_tokenize=char',
    '--metric=tests.cli.test_scoring:leave',
    '--metric=tests.cli.test_scoring:words',
  )
  assert status == 0, err
  (warning,) = (line for line in err.splitlines() if 'no more memory' in line)
  assert 'test_scoring:leave is skipped' in warning
  (path,) = tmp_path.glob('*.json')
  metrics = {
    metric['name']: metric for metric in json.loads(path.read_text('utf-8'))['metrics']
  }
  lines = out.removesuffix('\n').split('\n')
  assert metrics['words']['score'] == sum(words(0, lines, 0)) / 2
  assert '|tok:char|' in metrics['BLEU']['signature']


def test_a_command_with_a_diverged_run_ends_in_one_line(
  evaluate, change_params, folder
):
  # Only log-probabilities are not finite.
  diverged = change_params(lambda leaf: 1e30 * leaf)
  flags = (
    f'--workdir={diverged}',
    f'--source={folder}/test.en',
    f'--reference={folder}/test.de',
  )
  message = evaluate.rejects(*flags)
  assert (
    f'{diverged}, step 7, has diverged: the log-probabilities for line 1 are' in message
  )
  with pytest.raises(
    UserError, match='has diverged: the log-probabilities for line 1 are'
  ):
    transformer.load(diverged).score(['a dog'], ['ein hund'])


@pytest.mark.long
def test_references_that_are_all_empty_are_warned_of(
  evaluate, trained, folder, tmp_path
):
  (tmp_path / 'empty').write_text('\n \n')
  for reference, warns in ((tmp_path / 'empty', True), (folder / 'test.de', False)):
    status, _, err = evaluate(
      f'--workdir={trained}',
      f'--source={folder}/test.en',
      f'--reference={reference}',
      '--beam_size=1',
      f'--results={tmp_path}',
    )
    assert status == 0 and ('every reference is empty' in err) == warns, err


def test_lines_as_long_as_a_search_finds_are_scored_and_longer_ones_keep_their_place(
  trained, caplog
):
  vocabulary = Vocabulary.load(trained / 'vocabulary.model')
  lines = {len(vocabulary.encode('z' * count)) + 1: 'z' * count for count in range(90)}
  most = max(length for length in lines if length <= 64 + 3)
  longer = min(length for length in lines if length > 64 + 3)
  assert most > 64
  targets = ['ein hund', lines[longer], lines[most]]
  run = transformer.load(trained)
  assert np.isnan(run.score(['a dog'] * 3, targets)).tolist() == [False, True, False]
  scored = run.score(['a dog'] * 3, targets, tokens=True)
  assert len(scored[2]) == most and not scored[1]
  assert '1 of 3 pairs are too long to score' in caplog.text


@pytest.mark.long
def test_scores_are_stored_in_a_separate_folder(evaluate, folder, trained, tmp_path):
  shutil.copytree(trained, tmp_path / 'a')
  shutil.rmtree(tmp_path / 'a' / 'eval')
  (tmp_path / 'a' / 'eval').write_text('mine')  # Not even root can write into a file.
  flags = f'--workdir={tmp_path}/a', '--beam_size=1', '--batch_size=3'
  assert '--results needs a directory to write to; ' in evaluate.rejects(*flags)

  results = tmp_path / 'new' / 'results'
  status, again, err = evaluate(*flags, f'--results={results}')
  path = results / 'test.step2.beam1.alpha0.6.json'
  assert status == 0 and f'also in {path}\n' in again, err
  assert json.loads(path.read_text('utf-8'))['decode']['batch_size'] == 3
  sentences = (
    path.with_name(f'{path.stem}.sentences.jsonl').read_text('utf-8').splitlines()
  )
  assert [json.loads(line)['source'] for line in sentences] == (
    (folder / 'test.en').read_text('utf-8').splitlines()
  )
