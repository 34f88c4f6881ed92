"""A custom source, as in docs/plugins.md, is a corpus like any other."""

import pytest

from transformer.data.config import DataConfig
from transformer.data.encoded_cache import load_or_encode
from transformer.data.text.sources import open_corpus
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

PAIRS = [('one, two', 'eins, zwei'), ('three', 'drei'), ('four', 'vier')]


@pytest.fixture
def own(doc_plugins, tmp_path, monkeypatch):
  """Writes tables and faulty classes; returns what opens the corpus of a class."""
  name = f'tables_{tmp_path.name}'
  (tmp_path / f'{name}.py').write_text(
    """
import pathlib
from my_tables import Table

class Kept(Table):
  name, notes, gold = 'a table', ['odd'], ['1', '2', '3']
  folder = property(lambda self: pathlib.Path(__file__).parent)

class Nameless(Table):
  def __init__(self, data, split):
    self._pairs = [('a', 'b')]

class Numbers(Table):
  pairs = [(1, 2)]

  def __getitem__(self, pairs):
    return self.pairs

class Short(Numbers):
  pairs = []

class Broken(Numbers):
  pairs = [3]

class Empty(Numbers):
  def __len__(self):
    return 0
""",
    'utf-8',
  )
  (tmp_path / 'train.csv').write_text(
    ''.join(f'"{source}","{target}"\n' for source, target in PAIRS), 'utf-8'
  )
  monkeypatch.syspath_prepend(tmp_path)
  return lambda part, split='train': open_corpus(
    DataConfig(source=f'{name}:{part}', dir=str(tmp_path)), split
  )


def test_the_example_of_the_page_is_a_corpus(own):
  corpus = own('Table')
  assert len(corpus) == 3 and corpus[:] == PAIRS and corpus[1:2] == PAIRS[1:2]
  assert corpus.name.endswith(':Table:train') and len(corpus.fingerprint) == 64
  assert (corpus.notes, corpus.folder, corpus.gold) == ((), None, None)


def test_its_encoding_is_kept_where_it_says(own, tmp_path):
  vocabulary = Vocabulary.train(['one two three four eins zwei drei vier'] * 9, 280)
  plain, kept = (load_or_encode(own(name), vocabulary) for name in ('Table', 'Kept'))
  assert [plain[0][number].tolist() for number in range(3)] == [
    kept[0][number].tolist() for number in range(3)
  ]
  assert len(list((tmp_path / 'encoded').glob('*/about.json'))) == 1
  kept = own('Kept')
  assert (kept.name, kept.notes, kept.gold) == ('a table', ('odd',), ['1', '2', '3'])


def test_paragraphs_are_lines_up_to_a_blank_one(doc_plugins, tmp_path):
  lines = [*'abc', '', *'def', '', *'gh']
  for split in ('train', 'test'):
    for language, text in (('en', lines), ('de', list(map(str.upper, lines)))):
      path = tmp_path / f'{split}.{language}'
      path.write_text(''.join(f'{line}\n' for line in text), 'utf-8')
  data = DataConfig(
    source='my_paragraphs:Paragraphs',
    dir=str(tmp_path),
    source_language='en',
    target_language='de',
  )
  documents = open_corpus(data, 'test')
  assert documents[:] == [('a b c', 'A B C'), ('d e f', 'D E F'), ('g h', 'G H')]
  joined = open_corpus(data, 'train')
  assert ' '.join(source for source, _ in joined[:]).split() == [*'abcdefgh']
  assert all(
    any(source in document for document, _ in documents[:]) for source, _ in joined[:]
  )
  assert documents.fingerprint != joined.fingerprint


@pytest.mark.parametrize(
  ('part', 'split', 'fact'),
  [
    (
      'Table',
      'gone',
      r"split 'gone', cannot be opened: FileNotFoundError: .*gone\.csv",
    ),
    ('Nameless', 'train', 'cannot be opened: AttributeError: .*fingerprint'),
    (
      'Numbers',
      'train',
      r'must hold a source and a target as text .* such as \[\(1, 2\)',
    ),
    ('Short', 'train', 'got 0 of 1 pairs'),
    ('Broken', 'train', 'cannot be read: TypeError'),
    ('Empty', 'train', 'must hold at least one pair; .* is empty'),
    ('None', 'train', 'must be a function or a class of'),
  ],
)
def test_user_error_is_a_one_line_message_that_names_the_source(own, part, split, fact):
  with pytest.raises(UserError, match=fact) as caught:
    own(part, split)
  assert 'tables_' in str(caught.value) and '\n' not in str(caught.value)
