"""The audit finds planted errors, with their number and lines, and none in good text."""

import numpy as np
import pytest

from transformer.data.config import DataConfig
from transformer.data.corpora import make_run_batches, open_corpora
from transformer.data.vocabulary.vocabularies import SeparateVocabularies
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.tools.audit import findings
from transformer.tools.audit.report import as_json, audit, report_lines

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
# The errors from line 1,001 on: source, target, and the start of the finding's name.
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
  ('zebra 😀', 'zebra', 'characters that the vocabulary encodes as bytes'),
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
    [*sentences(ENGLISH, 1000), *(error[0] for error in planted)],
    [*sentences(GERMAN, 1000), *(error[1] for error in planted)],
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


def made(audited):
  """Returns the lines of each finding that was made, by the beginning of its name."""
  found = {}
  for what, lines in as_json({'': audited})[''].items():
    if lines:
      found[what.partition(' (')[0]] = lines
  return found


def table_of(name, audited, examples=3):
  return '\n'.join(report_lines(name, audited, examples))


def test_sound_text_has_no_finding(tmp_path, vocabulary, caplog):
  write_all(tmp_path)
  corpora = dict(audit(config_of(tmp_path), vocabulary))
  assert list(corpora) == ['train/train', 'valid', 'test']
  for name, audited in corpora.items():
    assert made(audited) == {}, name
    assert len(audited.corpus) == (1000 if name == 'train/train' else 120)
    table = table_of(name, audited)
    assert 'NOT ALIGNED' not in table
    assert 'en: 100.00% Latin; tokens of a sentence: ' in table
  config = config_of(tmp_path, test='', valid=('valid', 'gone'))
  assert list(dict(audit(config, vocabulary))) == ['train/train', 'valid']
  assert 'valid/gone is not audited: ' in caplog.text


def test_each_side_is_counted_by_its_own_vocabulary(tmp_path):
  write_all(tmp_path)
  sides = SeparateVocabularies(
    *(Vocabulary.train(sentences(words, 300), 320) for words in (ENGLISH, GERMAN))
  )
  config = config_of(tmp_path, shared_vocabulary=False, source_vocabulary_size=320)
  table = table_of('test', dict(audit(config, sides))['test'])
  for language, own, words in zip(('en', 'de'), sides, (ENGLISH, GERMAN), strict=True):
    longest = 1 + max(map(len, own.encode_batch(sentences(words, 120, 2))))
    (line,) = (row for row in table.splitlines() if row.startswith(f'  {language}: '))
    assert line.endswith(f'the longest {longest}')


def test_lines_at_the_limits_have_no_finding(tmp_path, vocabulary):
  write_all(tmp_path)
  pair = [' '.join([word] * (MAX_LENGTH - 1)) for word in ('dog', 'man')]
  assert [len(vocabulary.encode(line)) + 1 for line in pair] == [MAX_LENGTH] * 2
  # Half of the letters are not most of them.
  write(
    tmp_path,
    'test',
    *([line, f'{own} мир'] for line, own in zip(pair, ('red', 'rot'), strict=True)),
  )
  assert set(made(dict(audit(config_of(tmp_path), vocabulary))['test'])) == {
    'characters that the vocabulary encodes as bytes'
  }


@pytest.mark.parametrize('chunk', [7, 20_000])
def test_planted_errors_are_found_at_their_lines(
  tmp_path, vocabulary, monkeypatch, chunk
):
  write_all(tmp_path, PLANTED)
  monkeypatch.setattr(findings, '_CHUNK', chunk)
  audited = dict(audit(config_of(tmp_path), vocabulary))['train/train']
  kinds = made(audited)
  for number, (*_, what) in enumerate(PLANTED):
    (name,) = (name for name in kinds if name.startswith(what))
    assert 1001 + number in kinds[name], what
  # Each planted error is found only there, except for spelling in bytes, and for the tab of 1,002.
  for what, lines in kinds.items():
    planted = {
      1001 + number for number, error in enumerate(PLANTED) if what.startswith(error[2])
    }
    if 'bytes' not in what:
      assert set(lines) - {1002} == planted - {1002}, what
  table = table_of('train/train', audited)
  for what in kinds:
    assert what in table
  assert 'line 1007: dog \\u2028 dog | hund hund' in table
  assert all(line.isprintable() for line in table.split('\n'))
  examples = [line for line in table.splitlines() if line.startswith('        line ')]
  assert len(examples) == sum(min(len(lines), 3) for lines in kinds.values())


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
  corpora = dict(audit(config_of(tmp_path, train=('one', 'two')), vocabulary))
  repeated = 'the pair repeats an earlier one'
  assert made(corpora['train/one']) == {repeated: [401, 402]}
  assert made(corpora['train/two']) == {repeated: [601]}
  found = made(corpora['valid'])
  assert {what: lines for what, lines in found.items() if 'training' in what} == {
    'the pair is in training too': [1],
    'the source is in training too': [1, 2],
    'the target is in training too': [1, 3],
  }
  assert made(corpora['test']) == {}


def test_the_audit_counts_what_training_drops(tmp_path, vocabulary):
  planted = [error for error in PLANTED if error[0] and error[1].strip()]
  write_all(tmp_path, [*planted, *planted[-2:], planted[0]])
  config = config_of(tmp_path, max_length_ratio=2.5)
  lines = made(dict(audit(config, vocabulary))['train/train'])
  counts = make_run_batches(
    config, open_corpora(config), vocabulary, 10 * MAX_LENGTH, 0
  ).counts['train/train']
  long = lines[f'a side has more than data.max_length={MAX_LENGTH} tokens']
  assert (
    counts['dropped: source too long'] + counts['dropped: target too long']
    == len(long)
    == 2
  )
  uneven = set(lines['a side has more than 2.5 times the tokens of the other'])
  assert counts['dropped: length ratio'] == len(uneven - set(long)) > 1


def test_files_of_unequal_length_are_reported_with_the_first_shifted_line(
  tmp_path, vocabulary
):
  write_all(tmp_path)
  english, german = (sentences(words, 1600, 3) for words in (ENGLISH, GERMAN))
  write(tmp_path, 'train', english, german[:500] + german[501:])
  audited = dict(audit(config_of(tmp_path), vocabulary))['train/train']
  table = table_of('train/train', audited, 1).splitlines()
  assert 'NOT ALIGNED: 1,600 and 1,599 lines' in table[1]
  place = next(number for number, line in enumerate(table) if 'shifted' in line)
  assert (
    ' 1,099 ' in table[place] and 'line n is translated by line n-1' in table[place]
  )
  assert table[place + 1].strip().startswith('line 501: ')
  with pytest.raises(UserError, match='must have the same number of lines'):
    open_corpora(config_of(tmp_path))
