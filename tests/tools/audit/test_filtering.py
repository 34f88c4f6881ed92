"""The written text lacks the pairs with findings; all others stay, and so does the original."""

import json
import sys

import pytest

from tests.tools.audit.test_report import (
  ENGLISH,
  GERMAN,
  PLANTED,
  config_of,
  sentences,
  write,
  write_all,
)
from transformer.data.config import DataConfig
from transformer.data.corpora import open_corpora
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.tools.audit import filtering, language_id
from transformer.tools.audit.report import audit


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train([*sentences(ENGLISH, 300), *sentences(GERMAN, 300)] * 2, 320)


def content(folder):
  return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def pairs_of(folder, prefix):
  sides = []
  for language in ('en', 'de'):
    sides.append((folder / f'{prefix}.{language}').read_text('utf-8').split('\n'))
  return list(zip(*sides, strict=True))[:-1]


def written(config, vocabulary, folder, keep=()):
  """Writes the text of a config to a folder; returns the lines that are removed, by kind."""
  filtered = filtering.filter_corpora(dict(audit(config, vocabulary)), keep)
  filtering.write(folder, filtered, config)
  return json.loads((folder / 'removed.json').read_text('utf-8'))


def test_pairs_with_findings_are_removed_and_others_keep_their_order(
  tmp_path, vocabulary
):
  original = tmp_path / 'text'
  original.mkdir()
  write_all(original, PLANTED)
  train = pairs_of(original, 'train')
  test = pairs_of(original, 'test')
  train += [train[5], train[5], test[3]]
  train.append((test[4][0], f'{test[4][1]} hund'))
  train.append((f'{test[5][0]} dog', test[5][1]))
  write(original, 'train', *zip(*train, strict=True))
  before = content(original)
  folder = tmp_path / 'clean'
  report = written(config_of(original), vocabulary, folder)
  assert content(original) == before
  found = report['train/train']
  removed = [line for lines in found['removed'].values() for line in lines]
  assert sorted(removed) == list(range(1001, 1001 + len(PLANTED) + 5))
  assert found['pairs'] == len(train) == found['written'] + len(removed)
  assert found['removed']['repeat'] == [1016, 1017]
  assert found['removed']['shared_pair'] == [1018]
  assert found['removed']['shared_source'] == [1019]
  assert found['removed']['shared_target'] == [1020]
  # A pair with two blank sides is no copy, and a tab in a blank line no odd character.
  assert found['removed']['blank'] == [1001, 1002, 1015]
  assert pairs_of(folder, 'train') == train[:1000]
  for name in ('valid.en', 'valid.de', 'test.en', 'test.de'):
    assert content(folder)[name] == before[name]
  assert report['test'] == {'pairs': 120, 'written': 120, 'removed': {}}
  summary = (folder / 'removed.txt').read_text('utf-8')
  assert '1,020 pairs = 1,000 written + 20 removed' in summary


def test_findings_of_test_sets_stay_and_kinds_can_be_kept(tmp_path, vocabulary):
  write_all(tmp_path, PLANTED)
  write(tmp_path, 'test', ['', 'dog\x00'], ['hund', 'hund'])
  keep = ['blank', 'characters', 'copy', 'bytes', 'shared_source', 'shared_target']
  report = written(config_of(tmp_path), vocabulary, tmp_path / 'clean', keep)
  assert pairs_of(tmp_path / 'clean', 'test') == pairs_of(tmp_path, 'test')
  kept = dict(pairs_of(tmp_path / 'clean', 'train'))
  assert kept['the same'] == 'the same' and 'a\x00b dog' in kept
  assert set(report['train/train']['removed']) == {'length', 'ratio', 'script'}


def test_the_first_of_equal_pairs_that_can_stay_does(tmp_path, vocabulary):
  # A script is rare in the first corpus only, so its pair is removed there and not in the second.
  write_all(tmp_path)
  cyrillic = (['мир ' * 9] * 3, ['мир мир'] * 3)
  english = sentences(ENGLISH, 1000)
  german = sentences(GERMAN, 1000)
  write(tmp_path, 'one', [*english, cyrillic[0][0]], [*german, cyrillic[1][0]])
  write(tmp_path, 'two', [english[7], *cyrillic[0]], [german[7], *cyrillic[1]])
  config = config_of(tmp_path, train=('one', 'two'))
  report = written(config, vocabulary, tmp_path / 'clean', ['ratio', 'bytes'])
  assert report['train/one']['removed'] == {'script': [1001]}
  assert report['train/two']['removed'] == {'repeat': [1, 3, 4]}
  assert pairs_of(tmp_path / 'clean', 'two') == [('мир ' * 9, 'мир мир')]


def test_a_failure_leaves_no_folder(tmp_path, vocabulary):
  write_all(tmp_path, PLANTED)
  config = config_of(tmp_path)
  filtered = filtering.filter_corpora(dict(audit(config, vocabulary)), ())
  write(tmp_path, 'test', ['changed'], ['geändert'])
  before = sorted(path.name for path in tmp_path.iterdir())
  with pytest.raises(UserError, match='changed while'):
    filtering.write(tmp_path / 'clean', filtered, config)
  assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.fixture(scope='module')
def command(start_command):
  yield from start_command('transformer.tools.audit.__main__')


def test_training_reads_the_folder_with_the_flags_that_are_printed(command, tmp_path):
  original = tmp_path / 'text'
  (original / 'more').mkdir(parents=True)
  write_all(original, PLANTED)
  write(original, 'more/news', ['a red dog .'], ['ein roter hund .'])
  flags = [
    '--config=configs/text.py',
    f'--config.data.dir={original}',
    '--config.data.train=train,more/news',
    '--config.data.vocabulary_size=320',
  ]
  folder = tmp_path / 'clean'
  status, out, err = command(*flags, f'--write={folder}', '--keep=bytes,shared_target')
  assert status == 0, err
  printed = out.splitlines()[-1].partition('train on it with: ')[2].split()
  data = dict(flag.removeprefix('--config.data.').split('=') for flag in printed)
  data['train'] = tuple(data['train'].split(','))
  corpora = open_corpora(DataConfig(**data))
  assert data['dir'] == str(folder)
  train, news = corpora.train.values()
  assert train[:] == pairs_of(folder, 'train')
  assert news[:] == [('a red dog .', 'ein roter hund .')]


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    ('--write={folder}', 'needs a new or an empty folder'),
    ('--write={folder}/train.en', 'needs a directory'),
    ('--write={folder}/new --keep=blank,odd', 'out of blank, length, ratio'),
    ('--keep=blank', 'add --write=FOLDER'),
  ],
)
def test_a_folder_that_cannot_be_written_is_a_one_line_error(
  command, folder, flags, fact
):
  before = content(folder)
  config = f'--config={folder}/tiny.py'
  assert fact in command.rejects(config, *flags.format(folder=folder).split())
  assert content(folder) == before


def test_text_that_cannot_be_filtered_is_a_one_line_error(tmp_path, vocabulary):
  write_all(tmp_path)
  english = sentences(ENGLISH, 1000)
  write(tmp_path, 'train', english, sentences(GERMAN, 999))
  config = config_of(tmp_path)
  with pytest.raises(UserError, match='is not aligned'):
    written(config, vocabulary, tmp_path / 'clean')
  write(tmp_path, 'train', english, english)
  with pytest.raises(UserError, match='all pairs of train/train'):
    written(config, vocabulary, tmp_path / 'clean')
  write_all(tmp_path)
  config = config_of(tmp_path, train=('train',), test='train')
  with pytest.raises(UserError, match=r'two corpora to train\.en'):
    written(config, vocabulary, tmp_path / 'clean', filtering.KINDS)
  assert not (tmp_path / 'clean').exists()


def test_lines_in_another_language_are_removed(tmp_path, vocabulary):
  pytest.importorskip('py3langid')
  write_all(tmp_path)
  write(
    tmp_path,
    'train',
    ['The men sit on a bench.', 'Les hommes sont dans la cuisine.', 'Two dogs run.'],
    ['Die Männer sitzen.', 'Die Männer sind in der Küche.', 'Two dogs run outside.'],
  )
  config = config_of(tmp_path)
  is_foreign = language_id.identifier(['en', 'de'])
  audited = dict(audit(config, vocabulary, is_foreign))
  filtered = filtering.filter_corpora(audited, ['bytes', 'ratio'])
  assert filtered['train/train'].removed == {'language': [2, 3]}
  with pytest.raises(UserError, match='does not know the language qq'):
    language_id.identifier(['qq'])


def test_a_missing_library_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, 'py3langid', None)
  with pytest.raises(UserError, match=r'needs py3langid.*pip install -r .*audit'):
    language_id.identifier(['en', 'de'])
