"""`configs/text.py` takes languages and, if `small`, sizes from the files of a folder."""

import gzip

import pytest

from configs import text
from tests.command_fixtures import ENGLISH, GERMAN
from transformer.cli.flag_parsers import ConfigFile
from transformer.config import Config, flatten
from transformer.errors import UserError
from transformer.runs import run_directory


def write_pairs(folder, pairs, *languages):
  """Writes training files of empty lines, which are enough to count."""
  folder.mkdir(parents=True, exist_ok=True)
  for language in languages:
    (folder / f'train.{language}').write_bytes(b'\n' * pairs)


def test_small_models_of_text_are_sized_by_their_pairs(tmp_path):
  plain = flatten(text.get_config().to_dict())
  sizes = []
  for pairs in (1, 10_000, 20_000, 100_000, 200_000):
    folder = tmp_path / str(pairs)
    write_pairs(folder, pairs, 'en', 'de')
    config = text.get_config(f'small,en-de:{folder}')
    data, model = config.data, config.model
    assert (data.dir, data.source_language, data.target_language) == (
      str(folder),
      'en',
      'de',
    )
    assert model.model_dim < plain['model.model_dim']
    assert config.optimizer.warmup_steps < config.train.eval_every < config.train.steps
    assert config.train.steps % config.train.eval_every == 0
    sizes.append((data.vocabulary_size, 1 - model.dropout))
    Config.from_dict(config.to_dict())
  assert sizes == sorted(sizes)
  assert sizes[1] < sizes[2] < sizes[3]


def test_small_models_of_text_with_long_sentences_have_longer_rows(tmp_path):
  for length, words in ((64, 8), (128, 50)):
    line = 'words ' * words + '\n'
    for language in ('en', 'de'):
      (tmp_path / f'train.{language}').write_text(line * 50, 'utf-8')
    assert text.get_config(f'small:{tmp_path}').data.max_length == length


def test_text_without_small_has_the_sizes_for_a_gpu(tmp_path):
  write_pairs(tmp_path, 3, 'en', 'de')
  expected = text.get_config()
  expected.data.dir = str(tmp_path)
  expected.data.source_language = 'de'
  expected.data.target_language = 'en'
  config = ConfigFile().parse(f'configs/text.py:de-en:{tmp_path}')
  assert config.to_dict() == expected.to_dict()
  with pytest.raises(UserError, match=r'de, en; choose two .*text\.py:de-en:'):
    text.get_config(f'big:{tmp_path}')


def test_the_languages_of_small_text_match_its_files(tmp_path):
  parse = ConfigFile().parse

  def languages(which, folder):
    data = parse(f'configs/text.py:{which}:{folder}').data
    assert data.dir == str(folder)
    return data.source_language, data.target_language

  folder = tmp_path / 'C:text, mine'
  write_pairs(folder, 3, 'pt-br', 'en')
  assert languages('small', folder) == ('en', 'pt-br')
  assert languages('small,pt-br-en', folder) == ('pt-br', 'en')
  with gzip.open(folder / 'train.fr.gz', 'w') as file:
    file.write(b'\n' * 3)
  assert languages('small,fr-en', folder) == ('fr', 'en')
  with pytest.raises(UserError, match=r'en, fr, pt-br; choose two .*small,en-fr:'):
    languages('small', folder)
  with pytest.raises(UserError, match='en, fr, pt-br; choose two'):
    languages('small,en-de', folder)


@pytest.mark.parametrize(
  ('which', 'fact'),
  [
    ('small', r"small model configs/text\.py:small,en-de:mytext; got 'small'$"),
    (
      'small,en-de',
      r"small model configs/text\.py:small,en-de:mytext; got 'small,en-de'$",
    ),
    ('en-de', r"such as configs/text\.py:en-de:mytext, or .*; got 'en-de'$"),
    ('small:{}/nowhere', 'there is no folder .*nowhere; put train, valid and test'),
    ('small:{}/nothing', 'two languages, such as train.en .* found: none$'),
    ('small:{}/single', 'two languages, such as train.en .* found: en$'),
    ('small:{}/empty', "at least one pair; .* 'train', is empty"),
    ('small:{}/unequal', 'same number of lines; .*de has 2 lines, .*en has 3'),
  ],
)
def test_a_folder_without_text_for_a_small_model_is_rejected(tmp_path, which, fact):
  write_pairs(tmp_path / 'nothing', 0)
  write_pairs(tmp_path / 'single', 3, 'en')
  write_pairs(tmp_path / 'empty', 0, 'en', 'de')
  write_pairs(tmp_path / 'unequal', 3, 'en')
  write_pairs(tmp_path / 'unequal', 2, 'de')
  with pytest.raises(UserError, match=fact):
    text.get_config(which.format(tmp_path))


def test_a_small_run_keeps_its_sizes_as_plain_values(train, tmp_path):
  folder = tmp_path / 'mytext'
  folder.mkdir()
  for split, repeats in (('train', 3), ('valid', 1)):
    for language, lines in (('en', ENGLISH), ('de', GERMAN)):
      content = ''.join(f'{line}\n' for line in lines * repeats)
      (folder / f'{split}.{language}').write_text(content, 'utf-8')
  run = tmp_path / 'run'
  status, _, err = train(
    f'--config=configs/text.py:small,de-en:{folder}',
    f'--workdir={run}',
    '--config.data.vocabulary_size=300',
    '--config.model.num_layers=1',
    '--config.model.model_dim=8',
    '--config.model.ff_dim=8',
    '--config.train.tokens_per_batch=128',
    '--config.optimizer.algorithm=adam',
    '--config.train.steps=1',
  )
  assert status == 0, err
  kept = run_directory.read_config(run)
  chosen = text.get_config(f'small,de-en:{folder}')
  assert kept.data.dir == str(folder)
  assert (kept.data.source_language, kept.data.target_language) == ('de', 'en')
  assert kept.model.dropout == chosen.model.dropout
  assert kept.train.eval_every == chosen.train.eval_every
