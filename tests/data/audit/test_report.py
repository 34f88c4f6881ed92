"""The audit finds planted faults, with their number and lines, and none in good text."""

import json
import tracemalloc

import numpy as np
import pytest

from transformer.data.audit import findings
from transformer.data.audit import report as audit_report
from transformer.data.audit.report import look_over
from transformer.data.audit.table import as_table, in_brief
from transformer.data.config import DataConfig
from transformer.data.corpora import encode_corpora, open_corpora
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError

ENGLISH = ['man', 'dog', 'red', 'shirt', 'runs', 'over', 'grass', 'the', 'bench', 'women']
GERMAN = ['mann', 'hund', 'rot', 'hemd', 'läuft', 'über', 'gras', 'die', 'bank', 'frauen']
MAX_LENGTH = 83
# The faults from line 1,001 on: source, target, and the start of the finding's name.
PLANTED = [
    ('', 'nichts', 'a side is empty or blank'),
    ('blank', ' \t', 'a side is empty or blank'),
    ('the same', 'the same', 'source equals target'),
    ('a red dog over the bench', 'собака', 'de: most letters'),
    ('мир', 'frieden', 'en: most letters'),
    ('a\x00b dog', 'hund', 'control characters'),
    ('dog \u2028 dog', 'hund hund', 'control characters'),
    ('dog', 'hund\u200f', 'invisible characters'),
    ('dog\ufeff', 'ein hund', 'invisible characters'),
    ('caf\ufffd', 'cafe', 'broken or private characters'),
    ('dog ' * 90, 'hund ' * 89, f'a side has more than data.max_length={MAX_LENGTH}'),
    ('dog ' * 60, 'hund ' * 90, f'a side has more than data.max_length={MAX_LENGTH}'),
    ('dog', 'ein hund ein mann eine frau ein hemd', 'a side has more than 3 times'),
    ('zebra 😀', 'zebra', 'characters that the vocabulary spells in bytes'),
    (' ', ' ', 'a side is empty or blank'),
]


def sentences(words, lines, seed=0):
  """Returns random sentences, all different, with equally many words in both languages."""
  rng = np.random.default_rng(seed)
  numbers = [rng.integers(0, 10, rng.integers(4, 20)) for _ in range(lines)]
  return [' '.join(words[i] for i in each) for each in numbers]


def write(folder, prefix, english, german):
  for language, lines in (('en', english), ('de', german)):
    (folder / f'{prefix}.{language}').write_text(''.join(f'{line}\n' for line in lines),
                                                 encoding='utf-8', newline='')


def write_all(folder, planted=()):
  write(folder, 'train', [*sentences(ENGLISH, 1000), *(each[0] for each in planted)],
        [*sentences(GERMAN, 1000), *(each[1] for each in planted)])
  for prefix, seed in (('valid', 1), ('test', 2)):
    write(folder, prefix, sentences(ENGLISH, 120, seed), sentences(GERMAN, 120, seed))


def config_of(folder, **changes) -> DataConfig:
  return DataConfig(**{'source': 'text', 'dir': str(folder), 'valid': 'valid', 'test': 'test',
                       'source_language': 'en', 'target_language': 'de', 'vocabulary_size': 320,
                       'max_length': MAX_LENGTH, **changes})


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train([*sentences(ENGLISH, 300), *sentences(GERMAN, 300)] * 2, 320)


def found_in(findings):
  """Returns the count of each finding that was made, and the lines of its examples."""
  return {finding['what']: (finding['count'], sorted(each['line'] for each in finding['examples']))
          for finding in findings if finding['count']}


def test_sound_text_has_no_finding(tmp_path, vocabulary):
  write_all(tmp_path)
  report = look_over(config_of(tmp_path), vocabulary)
  assert list(report['corpora']) == ['train/train', 'valid', 'test']
  for name, about in report['corpora'].items():
    assert found_in(about['findings']) == {}, name
    assert about['pairs'] == about['lines'][0] == (1000 if name == 'train/train' else 120)
    assert about['aligned'] and about['notes'] == []
    assert [side['byte_tokens'] for side in about['sides']] == [0, 0]
  assert found_in(report['training']['findings']) == {} and in_brief(report) == []
  assert all(found_in(each) == {} for each in report['overlap'].values())
  table = as_table(report)
  assert 'NOT ALIGNED' not in table and '100.00 % Latin' in table
  without = look_over(config_of(tmp_path, test=''), vocabulary)
  assert list(without['corpora']) == ['train/train', 'valid']


def test_examples_are_cut_in_every_finding(tmp_path, vocabulary):
  long = 'dog ' * 900
  write_all(tmp_path, [(long, 'hund'), (long, 'hund'), (long, 'mann')])
  write(tmp_path, 'valid', [long], ['hund'])
  report = look_over(config_of(tmp_path, test=''), vocabulary)
  made = [*report['corpora']['train/train']['findings'], *report['training']['findings'],
          *(each for split in report['overlap'].values() for each in split)]
  examples = [each for finding in made for each in finding['examples']]
  assert len(examples) >= 6 and max(len(each['source']) for each in examples) == 200


@pytest.mark.parametrize('chunk', [7, 500, 20_000])
def test_what_is_planted_is_found_where_it_is(tmp_path, vocabulary, monkeypatch, chunk):
  write_all(tmp_path, PLANTED)
  monkeypatch.setattr(findings, '_CHUNK', chunk)
  report = look_over(config_of(tmp_path), vocabulary, examples=9)
  found = found_in(report['corpora']['train/train']['findings'])
  for number, (*_, what) in enumerate(PLANTED):
    name, = (name for name in found if name.startswith(what))
    assert 1001 + number in found[name][1], what
  # Each fault is found only there, except for spelling in bytes, and for the tab of 1,002.
  for what, (count, lines) in found.items():
    planted = [1001 + number for number, each in enumerate(PLANTED) if what.startswith(each[2])]
    if 'bytes' not in what:
      assert count == len(lines) and set(lines) - {1002} == set(planted) - {1002}, what
  assert found['control characters'][1] == [1002, 1006, 1007]
  table, (brief, *_) = as_table(report), in_brief(report)
  assert brief.startswith('train/train: ')
  for what, (count, _) in found.items():
    assert what in table and f' {what}: {count:,} (' in brief
  assert all(line.isprintable() for line in table.split('\n'))
  assert json.loads(json.dumps(report))['corpora']['train/train']['pairs'] == 1000 + len(PLANTED)


def test_repeated_and_overlapping_text_is_counted_by_kind(tmp_path, vocabulary):
  write_all(tmp_path)
  english, german = (sentences(words, 1000) for words in (ENGLISH, GERMAN))
  write(tmp_path, 'one', [*english[:400], english[5], english[5], english[7]],
        [*german[:400], german[5], german[5], 'hund'])
  write(tmp_path, 'two', [*english[400:], english[7]], [*german[400:], 'mann'])
  write(tmp_path, 'valid', [english[0], english[1], 'red dog', 'dog'],
        [german[0], 'rot', german[450], 'gras'])
  report = look_over(config_of(tmp_path, train=('one', 'two')), vocabulary)
  assert found_in(report['training']['findings']) == {
      'a pair repeats an earlier one': (2, [401, 402]), 'a source has several targets': (3, [8])}
  again, several = report['training']['findings']
  assert again['examples'][0]['note'] == 'of train/one, as train/one line 6'
  assert several['examples'][0]['note'] == (
      'of train/one, 3 targets, also train/one line 403, train/two line 601')
  assert found_in(report['overlap']['valid']) == {
      'the pair is in training too': (1, [1]), 'the source is in training too': (2, [1, 2]),
      'the target is in training too': (2, [1, 3])}
  note = report['overlap']['valid'][2]['examples'][1]['note']
  assert note == 'as train/two line 51'
  assert found_in(report['overlap']['test']) == {}
  both = look_over(config_of(tmp_path, train=('one', 'two'), valid=('test', 'valid')), vocabulary)
  assert both['overlap']['valid'] == report['overlap']['test']
  assert both['overlap']['valid/valid'] == report['overlap']['valid']
  assert in_brief(report)[-2:] == [
      'all training text: a pair repeats an earlier one: 2 (0.20 %); a source has several targets: '
      '3 (0.30 %)',
      'valid, overlap with training: the pair is in training too: 1 (25.00 %); the source is in '
      'training too: 2 (50.00 %); the target is in training too: 2 (50.00 %)']


def test_the_audit_counts_what_training_drops(tmp_path, vocabulary):
  planted = [each for each in PLANTED if each[0] and each[1].strip()]
  write_all(tmp_path, [*planted, *planted[-2:], planted[0]])
  config = config_of(tmp_path, max_length_ratio=2.5, drop_identical=True, drop_duplicates=True)
  report = look_over(config, vocabulary, examples=99)
  counts = encode_corpora(config, open_corpora(config), vocabulary,
                          10 * MAX_LENGTH, 0).counts['train/train']
  lines = {what: lines for what, (_, lines) in
           found_in(report['corpora']['train/train']['findings']).items()}
  long = lines[f'a side has more than data.max_length={MAX_LENGTH} tokens']
  assert counts['dropped: source too long'] + counts['dropped: target too long'] == len(long) == 2
  uneven = set(lines['a side has more than 2.5 times the tokens of the other']) - set(long)
  assert counts['dropped: length ratio'] == len(uneven) > 1
  assert counts['dropped: source equals target'] == len(lines['source equals target']) == 2
  again = found_in(report['training']['findings'])['a pair repeats an earlier one'][1]
  # Each pair is counted for one reason, and the other reasons come first.
  others = {*long, *uneven, *lines['source equals target']}
  assert counts['dropped: repeated pair'] == len({*again} - others) == 1 < len(again) == 3


def test_files_of_unequal_length_are_reported_with_the_first_shifted_line(tmp_path, vocabulary):
  write_all(tmp_path)
  english, german = (sentences(words, 1600, 3) for words in (ENGLISH, GERMAN))
  write(tmp_path, 'train', english, german[:500] + german[501:])
  report = look_over(config_of(tmp_path), vocabulary)
  about = report['corpora']['train/train']
  assert about['lines'] == [1600, 1599] and not about['aligned'] and about['pairs'] == 1599
  finding = about['findings'][0]
  assert (finding['what'], finding['count']) == ('the two sides look shifted', 1099)
  example, = finding['examples']
  assert example['line'] == 501
  assert example['note'] == 'to line 1599: the target seems to come 1 line too early'
  assert 'NOT ALIGNED: 1,600 and 1,599 lines of en and de' in as_table(report)
  with pytest.raises(UserError, match='must have the same number of lines'):
    open_corpora(config_of(tmp_path))


def test_slips_of_different_sizes_are_told_apart(tmp_path, vocabulary):
  write_all(tmp_path)
  english, german = (sentences(words, 1600, 3) for words in (ENGLISH, GERMAN))
  write(tmp_path, 'train', english, german[:500] + german[501:1000] + german[1001:])
  finding = look_over(config_of(tmp_path), vocabulary)['corpora']['train/train']['findings'][0]
  assert [(each['line'], each['note']) for each in finding['examples']] == [
      (1001, 'to line 1598: the target seems to come 2 lines too early'),
      (501, 'to line 1000: the target seems to come 1 line too early')]


def test_slips_that_follow_each_other_through_chunks_are_one(tmp_path, vocabulary, monkeypatch):
  monkeypatch.setattr(findings, '_CHUNK', 1000)
  write_all(tmp_path)
  english, german = (sentences(words, 3100, 3) for words in (ENGLISH, GERMAN))
  write(tmp_path, 'train', english[:500] + english[502:2500] + ['dog', 'man'] + english[2500:],
        german)
  finding = look_over(config_of(tmp_path), vocabulary)['corpora']['train/train']['findings'][0]
  assert [(each['line'], each['note'][:14]) for each in finding['examples']] == [
      (501, 'to line 2500: ')]
  assert '2 lines too late' in finding['examples'][0]['note']


def test_what_cannot_be_read_is_said_and_the_rest_is_looked_at(tmp_path):
  write_all(tmp_path)
  (tmp_path / 'test.de').unlink()
  (tmp_path / 'valid.en').write_bytes(b'one\nstra\xdfe\n')
  write(tmp_path, 'empty', [], [])
  report = look_over(config_of(tmp_path, train=('train', 'empty')))
  assert 'test.de' in report['corpora']['test']['error']
  assert 'line 2 is not' in report['corpora']['valid']['error']
  assert report['corpora']['train/empty']['pairs'] == 0 and report['overlap'] == {}
  assert report['training']['pairs'] == 1000
  table = as_table(report)
  assert 'valid: cannot be used: ' in table and 'from 1,000 training pairs' in table


def test_a_set_that_turns_out_to_be_no_text_is_named_and_left_out(tmp_path, monkeypatch):
  write_all(tmp_path)
  read = audit_report.open_corpus

  class Torn(list):
    name, notes = 'torn', ()

    def __getitem__(self, index):
      raise UserError('torn must be UTF-8; example 3 is not')

  monkeypatch.setattr(audit_report, 'open_corpus', lambda config, split, **options: (
      Torn([1] * 5) if split == 'torn' else read(config, split, **options)))
  report = look_over(config_of(tmp_path, train=('torn', 'train'), test='torn'))
  assert 'example 3 is not' in report['vocabulary']['error']
  for name in ('train/torn', 'test'):
    assert report['corpora'][name] == {'error': 'torn must be UTF-8; example 3 is not'}
  assert report['training']['pairs'] == 1000 and list(report['overlap']) == ['valid']
  assert 'test: cannot be used: torn must be UTF-8' in as_table(report)


def test_an_audit_runs_without_a_vocabulary(tmp_path):
  write(tmp_path, 'train', ['a'], ['b'])
  report = look_over(config_of(tmp_path))
  assert 'vocabulary_size=320 is more than' in report['vocabulary']['error']
  assert report['corpora']['train/train']['sides'][0]['lengths'] == ()
  assert 'vocabulary: none, vocabulary_size=320 is' in as_table(report)


@pytest.mark.long
def test_text_is_not_held(monkeypatch):
  class Lines:
    def __len__(self):
      return 40_000

    def __getitem__(self, index):
      if isinstance(index, int):
        return 'x', 'y'
      return [(f'{i} dog ' * 30, f'{i} hund ' * 30) for i in range(40_000)[index]]

  monkeypatch.setattr(findings, '_CHUNK', 500)
  findings.examine(Lines(), ('en', 'de'), None, 9, 0.0, 3)  # Fills the caches.
  tracemalloc.start()
  try:
    findings.examine(Lines(), ('en', 'de'), None, 9, 0.0, 3)
    _, most = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  text = sum(len(side) for pair in Lines()[:] for side in pair)
  assert most < 8e6 < text / 2
