"""The audit finds planted faults, with their number and lines, and none in good text."""

import json

import numpy as np
import pytest

from transformer.data.config import DataConfig
from transformer.data.corpora import encode_corpora, open_corpora
from transformer.data.vocabulary.vocabularies import SeparateVocabularies
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.tools.audit import findings
from transformer.tools.audit.report import as_table, audit

ENGLISH = [
  'man',
  'dog',
  'red',
  'shirt',
  'runs',
  'over',
  'grass',
  'the',
  'bench',
  'women',
]
GERMAN = [
  'mann',
  'hund',
  'rot',
  'hemd',
  'läuft',
  'über',
  'gras',
  'die',
  'bank',
  'frauen',
]
MAX_LENGTH = 83
# The faults from line 1,001 on: source, target, and the start of the finding's name.
PLANTED = [
  ('', 'nichts', 'a side is blank'),
  ('blank', ' \t', 'a side is blank'),
  ('the same', 'the same', 'source equals target'),
  ('a red dog over the bench', 'собака', 'de: most letters'),
  ('мир', 'frieden', 'en: most letters'),
  ('a\x00b dog', 'hund', 'control, invisible'),
  ('dog \u2028 dog', 'hund hund', 'control, invisible'),
  ('dog', 'hund\u200f', 'control, invisible'),
  ('dog\ufeff', 'ein hund', 'control, invisible'),
  ('caf\ufffd', 'cafe', 'control, invisible'),
  ('dog ' * 90, 'hund ' * 89, f'a side has more than data.max_length={MAX_LENGTH}'),
  ('dog ' * 60, 'hund ' * 90, f'a side has more than data.max_length={MAX_LENGTH}'),
  ('dog', 'ein hund ein mann eine frau ein hemd', 'a side has more than 3 times'),
  ('zebra 😀', 'zebra', 'characters that the vocabulary spells in bytes'),
  (' ', ' ', 'a side is blank'),
]


def sentences(words, lines, seed=0):
  """Returns random sentences, all different, with equally many words in both languages."""
  rng = np.random.default_rng(seed)
  numbers = [rng.integers(0, 10, rng.integers(4, 20)) for _ in range(lines)]
  return [' '.join(words[i] for i in sentence) for sentence in numbers]


def write(folder, prefix, english, german):
  for language, lines in (('en', english), ('de', german)):
    (folder / f'{prefix}.{language}').write_text(
      ''.join(f'{line}\n' for line in lines), encoding='utf-8', newline=''
    )


def write_all(folder, planted=()):
  write(
    folder,
    'train',
    [*sentences(ENGLISH, 1000), *(fault[0] for fault in planted)],
    [*sentences(GERMAN, 1000), *(fault[1] for fault in planted)],
  )
  for prefix, seed in (('valid', 1), ('test', 2)):
    write(folder, prefix, sentences(ENGLISH, 120, seed), sentences(GERMAN, 120, seed))


def config_of(folder, **changes) -> DataConfig:
  return DataConfig(
    **{
      'source': 'text',
      'dir': str(folder),
      'valid': 'valid',
      'test': 'test',
      'source_language': 'en',
      'target_language': 'de',
      'vocabulary_size': 320,
      'max_length': MAX_LENGTH,
      **changes,
    }
  )


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train([*sentences(ENGLISH, 300), *sentences(GERMAN, 300)] * 2, 320)


def made(about):
  """Returns the count of each finding that was made, and the lines of its examples."""
  return {
    finding['what'].partition(' (')[0]: (
      finding['count'],
      sorted(example['line'] for example in finding['examples']),
    )
    for finding in about['findings']
    if finding['count']
  }


def notes(about, what):
  """Returns the lines and notes of the examples of a finding."""
  return [
    (example['line'], example['note'])
    for finding in about['findings']
    if finding['what'].startswith(what)
    for example in finding['examples']
  ]


def test_sound_text_has_no_finding(tmp_path, vocabulary):
  write_all(tmp_path)
  report = audit(config_of(tmp_path), vocabulary)
  assert list(report['corpora']) == ['train/train', 'valid', 'test']
  for name, about in report['corpora'].items():
    assert made(about) == {}, name
    assert (
      about['pairs'] == about['lines'][0] == (1000 if name == 'train/train' else 120)
    )
    assert about['aligned'] and about['notes'] == []
  table = as_table(report)
  assert (
    'NOT ALIGNED' not in table and 'en: 100.00 % Latin; tokens of a sentence: ' in table
  )
  without = audit(config_of(tmp_path, test='', valid=('valid', 'gone')), vocabulary)
  assert list(without['corpora']) == ['train/train', 'valid']
  assert 'valid/gone: NOT READ: ' in as_table(without)


def test_each_side_is_counted_by_its_own_vocabulary(tmp_path):
  write_all(tmp_path)
  sides = SeparateVocabularies(
    *(Vocabulary.train(sentences(words, 300), 290) for words in (ENGLISH, GERMAN))
  )
  config = config_of(
    tmp_path, shared_vocabulary=False, source_vocabulary_size=290, vocabulary_size=290
  )
  about = audit(config, sides)['corpora']['test']
  for side, own, words in zip(about['sides'], sides, (ENGLISH, GERMAN), strict=True):
    assert side['lengths'][-1] == 1 + max(
      map(len, own.encode_batch(sentences(words, 120, 2)))
    )


def test_what_just_fits_is_no_finding(tmp_path, vocabulary):
  write_all(tmp_path)
  pair = [' '.join([word] * (MAX_LENGTH - 1)) for word in ('dog', 'man')]
  assert [len(vocabulary.encode(line)) + 1 for line in pair] == [MAX_LENGTH] * 2
  write(
    tmp_path,
    'test',
    *([line, f'{own} мир'] for line, own in zip(pair, ('red', 'rot'), strict=True)),
  )  # Half of the letters are not most of them.
  assert set(made(audit(config_of(tmp_path), vocabulary)['corpora']['test'])) == {
    'characters that the vocabulary spells in bytes'
  }


@pytest.mark.parametrize('chunk', [7, 20_000])
def test_what_is_planted_is_found_where_it_is(tmp_path, vocabulary, monkeypatch, chunk):
  write_all(tmp_path, PLANTED)
  monkeypatch.setattr(findings, '_CHUNK', chunk)
  report = audit(config_of(tmp_path), vocabulary, examples=9)
  kinds = made(report['corpora']['train/train'])
  for number, (*_, what) in enumerate(PLANTED):
    (name,) = (name for name in kinds if name.startswith(what))
    assert 1001 + number in kinds[name][1], what
  # Each fault is found only there, except for spelling in bytes, and for the tab of 1,002.
  for what, (count, lines) in kinds.items():
    planted = {
      1001 + number for number, fault in enumerate(PLANTED) if what.startswith(fault[2])
    }
    if 'bytes' not in what:
      assert count == len(lines) and set(lines) - {1002} == planted - {1002}, what
  assert (
    max(
      len(example['source'])
      for finding in report['corpora']['train/train']['findings']
      for example in finding['examples']
    )
    == 200
  )
  table = as_table(report)
  for what in kinds:
    assert what in table
  assert all(line.isprintable() for line in table.split('\n'))
  assert json.loads(json.dumps(report))['corpora']['train/train'][
    'pairs'
  ] == 1000 + len(PLANTED)


def test_repeated_and_overlapping_text_is_counted_by_kind(tmp_path, vocabulary):
  write_all(tmp_path)
  english, german = (sentences(words, 1000) for words in (ENGLISH, GERMAN))
  write(
    tmp_path,
    'one',
    [*english[:400], english[5], english[5]],
    [*german[:400], german[5], german[5]],
  )
  write(tmp_path, 'two', [*english[400:], english[7]], [*german[400:], german[7]])
  write(
    tmp_path,
    'valid',
    [english[0], english[1], 'red dog', 'dog'],
    [german[0], 'rot', german[450], 'gras'],
  )
  corpora = audit(config_of(tmp_path, train=('one', 'two')), vocabulary)['corpora']
  repeated = 'the pair repeats an earlier one'
  assert made(corpora['train/one']) == {repeated: (2, [401, 402])}
  assert notes(corpora['train/one'], repeated)[0] == (401, 'as train/one, line 6')
  assert notes(corpora['train/two'], repeated) == [(601, 'as train/one, line 8')]
  overlap = {
    what: places
    for what, places in made(corpora['valid']).items()
    if 'training' in what
  }
  assert overlap == {
    'the pair is in training too': (1, [1]),
    'the source is in training too': (2, [1, 2]),
    'the target is in training too': (2, [1, 3]),
  }
  assert notes(corpora['valid'], 'the target')[1] == (3, 'as train/two, line 51')
  assert made(corpora['test']) == {}


def test_the_audit_counts_what_training_drops(tmp_path, vocabulary):
  planted = [fault for fault in PLANTED if fault[0] and fault[1].strip()]
  write_all(tmp_path, [*planted, *planted[-2:], planted[0]])
  config = config_of(tmp_path, max_length_ratio=2.5)
  report = audit(config, vocabulary, examples=99)
  counts = encode_corpora(
    config, open_corpora(config), vocabulary, 10 * MAX_LENGTH, 0
  ).counts['train/train']
  lines = {
    what: lines for what, (_, lines) in made(report['corpora']['train/train']).items()
  }
  long = lines[f'a side has more than data.max_length={MAX_LENGTH} tokens']
  assert (
    counts['dropped: source too long'] + counts['dropped: target too long']
    == len(long)
    == 2
  )
  uneven = set(lines['a side has more than 2.5 times the tokens of the other']) - set(
    long
  )
  assert counts['dropped: length ratio'] == len(uneven) > 1


def test_files_of_unequal_length_are_reported_with_the_first_shifted_line(
  tmp_path, vocabulary
):
  write_all(tmp_path)
  english, german = (sentences(words, 1600, 3) for words in (ENGLISH, GERMAN))
  write(tmp_path, 'train', english, german[:500] + german[501:])
  report = audit(config_of(tmp_path), vocabulary)
  about = report['corpora']['train/train']
  assert (
    about['lines'] == [1600, 1599] and not about['aligned'] and about['pairs'] == 1599
  )
  finding = about['findings'][0]
  assert (finding['what'], finding['count']) == ('the two sides look shifted', 1099)
  assert notes(about, 'the two sides') == [
    (501, 'to line 1599: line n seems to be translated by line n-1')
  ]
  assert 'NOT ALIGNED: 1,600 and 1,599 lines' in as_table(report)
  with pytest.raises(UserError, match='must have the same number of lines'):
    open_corpora(config_of(tmp_path))
