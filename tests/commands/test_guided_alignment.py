"""Runs whose attention is trained towards links, from the files to the alignment error rate."""

import json
import random

import chex
import pytest

from tests.experiment.tiny_runs import rows_of
from tests.running_commands import CONFIG, ENGLISH, GERMAN
from transformer.runs.loading import load_run

WORDS = ['man', 'woman', 'dog', 'bench', 'grass', 'apple', 'child', 'rock', 'shirt', 'climbing']
GUIDED = ('--config.data.alignments=links', '--config.train.alignment_layer=1')


def write(folder, name, english, german, links):
  for ending, lines in (('en', english), ('de', german), ('links', links)):
    (folder / f'{name}.{ending}').write_text(''.join(f'{line}\n' for line in lines), 'utf-8')


@pytest.fixture
def text(tmp_path):
  """A folder with text, links and the file of a config; returns it with the flags of training."""
  first = ['0-0 1-1 2-2 3-3 4-4 5-5', '', '0-0 1-1', '4-4']
  write(tmp_path, 'train', ENGLISH * 3, GERMAN * 3, first * 3)
  write(tmp_path, 'valid', ENGLISH[:2], GERMAN[:2], [])
  (tmp_path / 'tiny.py').write_text(CONFIG.format(folder=str(tmp_path)), 'utf-8')
  return tmp_path, f'--config={tmp_path}/tiny.py'


@pytest.mark.long
def test_a_guided_run_resumes_as_if_it_had_not_stopped(train, evaluate, text):
  folder, config = text
  for name, *steps in (('whole', 3), ('parts', 1, 3)):
    for number in steps:
      status, _, err = train(config, *GUIDED, f'--workdir={folder}/{name}',
                             f'--config.train.steps={number}', '--config.train.log_every=1')
      assert status == 0, err
  rows = [[row for row in rows_of(folder / name) if 'train/loss' in row]
          for name in ('whole', 'parts')]
  assert rows[0] == rows[1] and len(rows[0]) == 3
  assert all(0 < row['train/alignment_loss'] < 5 for row in rows[0])
  chex.assert_trees_all_equal(*(load_run(folder / name).params for name in ('whole', 'parts')))

  # Its first head alone links words, unless a layer is named.
  flags = (f'--workdir={folder}/whole', f'--source={folder}/train.en',
           f'--reference={folder}/train.de', '--score', '--output=/dev/null')
  found = []
  for more in ([], ['--alignment_layer=1'], [f'--ensemble={folder}/parts']):
    status, _, err = evaluate(*flags, *more, f'--alignments={folder}/found')
    assert status == 0, err
    found.append((folder / 'found').read_text('utf-8'))
  assert found[0] == found[2] != found[1]

  (folder / 'train.links').write_text('0-0\n' * 12, 'utf-8')
  message = train.refuses(config, *GUIDED, f'--workdir={folder}/whole', '--config.train.steps=4')
  assert 'was trained on other data: alignments/train changed since' in message
  message = train.refuses(config, f'--workdir={folder}/whole', '--config.train.steps=4')
  assert "data.alignments was 'links', is ''" in message


@pytest.mark.parametrize(('links', 'flags', 'fact'), [
    (['0-0'] * 11, GUIDED, 'has 12 pairs, {folder}/train.links has 11 lines'),
    (None, GUIDED, 'wanted the file {folder}/train.links'),
    (['0-0'] * 11 + ['6-0'], GUIDED, '{folder}/train.links:12: the link 6-0 must join one of the 6 '
                                     'words of the source to one of the 6 of the target'),
    ([], GUIDED[:1], "got alignment_layer=0, alignments='links'"),
    ([], GUIDED[1:], "got alignment_layer=1, alignments=''"),
    ([], [GUIDED[0], '--config.train.alignment_layer=2'], 'from 1 at the bottom to 1; got 2'),
    ([], [*GUIDED, '--config.data.bpe_dropout=0.1'], 'leave out data.bpe_dropout')])
def test_a_mistake_in_guided_alignment_is_one_line(train, text, links, flags, fact):
  folder, config = text
  if links is None:
    (folder / 'train.links').unlink()
  else:
    write(folder, 'train', ENGLISH * 3, GERMAN * 3, links)
  message = train.refuses(config, *flags, f'--workdir={folder}/run')
  assert fact.format(folder=folder) in message, message


def reversal(count, seed):
  """Returns sentences, their translations word by word in reverse order, and the links."""
  draw = random.Random(seed)
  english = [draw.choices(WORDS, k=draw.randint(3, 7)) for _ in range(count)]
  links = [' '.join(f'{len(line) - 1 - j}-{j}' for j in range(len(line))) for line in english]
  return ([' '.join(line) for line in english],
          [' '.join(word[::-1] for word in line[::-1]) for line in english], links)


@pytest.mark.long
def test_guidance_lowers_the_alignment_error_rate(train, evaluate, text):
  folder, config = text
  write(folder, 'train', *reversal(2000, 1))
  write(folder, 'valid', *reversal(50, 2))
  write(folder, 'gold', *reversal(100, 3))
  errors = []
  for name, flags in (('plain', []), ('guided', [*GUIDED, '--config.train.alignment_weight=0.5'])):
    status, _, err = train(
        config, *flags, f'--workdir={folder}/{name}', '--config.train.steps=200',
        '--config.train.eval_every=200', '--config.train.checkpoint_every=200',
        '--config.train.tokens_per_batch=1280', '--config.model.model_dim=32',
        '--config.model.ff_dim=64', '--config.optimizer.schedule=constant',
        '--config.optimizer.peak_learning_rate=0.005', '--config.optimizer.warmup_steps=20')
    assert status == 0, err
    status, _, err = evaluate(
        f'--workdir={folder}/{name}', f'--source={folder}/gold.en',
        f'--reference={folder}/gold.de', '--score', '--output=/dev/null',
        f'--alignment_gold={folder}/gold.links')
    assert status == 0, err
    path, = (folder / name / 'eval').glob('*.alignment.*json')
    errors.append(json.loads(path.read_text('utf-8'))['metrics'][0]['score'])
  assert errors[1] < 0.7 * errors[0]
