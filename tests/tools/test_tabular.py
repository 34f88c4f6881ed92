"""A table has the pairs, fingerprint and encoding of two text files; a broken line is named."""

import gzip
import json
import tempfile

import pytest
from absl import logging

from transformer.data.config import DataConfig
from transformer.data.encoded_cache import load_or_encode
from transformer.data.text.sources import open_corpus
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.runs.metrics_file import read_metrics
from transformer.tools import tabular

PAIRS = [
  ('one "dog"', 'ein "Hund"'),
  ('two\u2028', ''),
  ('3, 4', 'über 😀'),
  ('', ' x '),
  ('"', 'vier'),
] * 7
NESTED = [
  {'id': 1, 'translation': {'de': target, 'en': source}} for source, target in PAIRS
]
FLAT = [{'en': source, 'de': target, 'translation': 'none'} for source, target in PAIRS]
KINDS = {
  'columns': ('Tsv', [f'{source}\t{target}\t0.5' for source, target in PAIRS]),
  'header': (
    'Tsv',
    ['id\tde\ten', *(f'1\t{target}\t{source}' for source, target in PAIRS)],
  ),
  'nested': ('JsonLines', list(map(json.dumps, NESTED))),
  'flat': ('JsonLines', [json.dumps(row, ensure_ascii=False) for row in FLAT]),
}


def open_table(folder, kind, data: bytes, packed=''):
  (folder / f'train{getattr(tabular, kind).ending}{packed}').write_bytes(data)
  return open_in(folder, f'{tabular.__name__}:{kind}')


def open_in(folder, source='text'):
  return open_corpus(
    DataConfig(source, dir=str(folder), source_language='en', target_language='de'),
    'train',
  )


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train(['one two dog ein Hund über vier x'] * 9, 290)


@pytest.mark.parametrize(('kind', 'lines'), KINDS.values(), ids=KINDS)
def test_a_table_is_the_same_corpus_as_two_text_files(
  tmp_path, monkeypatch, vocabulary, kind, lines
):
  monkeypatch.setattr(tabular, '_CHUNK', 4)
  for place, language in enumerate(('en', 'de')):
    (tmp_path / f'train.{language}').write_text(
      ''.join(pair[place] + '\n' for pair in PAIRS), 'utf-8'
    )
  text = open_in(tmp_path)
  wanted = [side.tokens.tolist() for side in load_or_encode(text, vocabulary)]
  data = '\n'.join(['', *lines[:3], '', *lines[3:]]).encode()
  for form, packed in (
    (data, ''),
    (data.replace(b'\n', b'\r\n') + b'\r\n', ''),
    (b'\xef\xbb\xbf' + data, ''),
    (gzip.compress(data), '.gz'),
  ):
    corpus = open_table(tmp_path, kind, form, packed)
    assert corpus[:] == PAIRS and corpus[7:12] == PAIRS[7:12] and corpus.notes == ()
    assert (corpus.fingerprint, corpus.folder) == (text.fingerprint, text.folder)
    assert [
      side.tokens.tolist() for side in load_or_encode(corpus, vocabulary)
    ] == wanted
    (tmp_path / f'train{getattr(tabular, kind).ending}{packed}').unlink()
  assert len(list((tmp_path / 'encoded').glob('*/about.json'))) == 1


@pytest.mark.parametrize(
  ('header', 'source', 'target'),
  [
    ('de\ten', 2, 1),
    ('DE\tEN', 2, 1),
    ('"de"\t"en"', 2, 1),
    ('de\ten ', 2, 1),
    ('#de\ten', 2, 1),
    ('\ufeff# De\t EN', 2, 1),
    ("id\t'en'\tde\u00a0", 2, 3),
    # A pair, although its words are codes of languages, or names of columns.
    ('no\tNo', 0, 0),
    ('it is\tde en', 0, 0),
    ('Source.\tQuelle.', 0, 0),
    ('is\tist', 0, 0),
    ('\tid', 0, 0),
  ],
  ids=ascii,
)
def test_a_header_is_known_in_any_dress_and_the_columns_are_logged(
  tmp_path, monkeypatch, header, source, target
):
  logged = []
  monkeypatch.setattr(
    logging, 'info', lambda text, *values: logged.append(text % values)
  )
  first = header.lstrip('\ufeff').split('\t')
  row = [f'{number}' for number in range(1, 1 + len(first))]
  corpus = open_table(tmp_path, 'Tsv', f'{header}\n{chr(9).join(row)}\n'.encode())
  assert corpus[:] == (
    [(f'{source}', f'{target}')] if source else [tuple(first), ('1', '2')]
  )
  (line,) = logged
  assert line.startswith(f'{tmp_path}/train.tsv: ')
  assert f'en is column {source or 1} and de column {target or 2}' in line
  assert line.endswith('by its header' if source else 'without a header')


@pytest.mark.parametrize(
  'header',
  [
    'DE\tFR',
    'fr\tde',
    'source\ttarget',
    'src\ttgt',
    '"Source"\t"Target"',
    'source_en\ttarget_de',
    'English\tGerman',
    'sentence1\tsentence2',
    'eng_Latn\tdeu_Latn',
    'en-US\tde-DE',
    'en\tDeutsch',
    'Deutsch\tEnglisch',
    'en\tde\tEN',
    'id\tsource\ttarget\tscore',
    '#id\ttext\ttranslation',
  ],
)
def test_a_first_line_that_looks_like_a_header_names_its_columns(tmp_path, header):
  with pytest.raises(
    UserError, match=r'train\.tsv, line 2: .* en and de must each appear'
  ) as caught:
    open_table(tmp_path, 'Tsv', f'\n{header}\na\tb\tc\n'.encode())
  assert ', '.join(header.split('\t')) in str(caught.value)
  assert 'add the header line en<TAB>de above it' in str(caught.value)
  pair = header.split('\t')
  corpus = open_table(
    tmp_path,
    'Tsv',
    f'{header}\n'.join(
      ['\t'.join(['en', 'de', 'x', 'y'][: len(pair)]) + '\n', '']
    ).encode(),
  )
  assert corpus[:] == [tuple(pair[:2])]


def test_names_in_json_may_be_in_capitals(tmp_path):
  rows = [
    {'EN': 'a', ' De ': 'b'},
    {'translation': {'En': 'c', 'de': 'd', 'DE': 'e'}},
    {'en': 'f', 'EN': 'g', 'de': 'h'},
  ]
  data = '\n \n'.join(map(json.dumps, rows)).encode()
  assert open_table(tmp_path, 'JsonLines', data)[:] == [
    ('a', 'b'),
    ('c', 'd'),
    ('f', 'h'),
  ]


def test_a_full_disk_of_temporary_files_is_named(tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, 'TemporaryFile', lambda: open('/dev/full', 'wb+'))  # noqa: SIM115
  for packed in ('', '.gz'):
    data = gzip.compress(b'a\tb\n') if packed else b'a\tb\n'
    with pytest.raises(UserError, match='No space left on device') as caught:
      open_table(tmp_path, 'Tsv', data, packed)
    assert '\n' not in str(caught.value)
    (tmp_path / f'train.tsv{packed}').unlink()


@pytest.mark.parametrize(
  ('kind', 'data', 'line', 'facts'),
  [
    ('Tsv', b'a\n', 1, 'expected 2 tab-separated columns.* got 1'),
    ('Tsv', b'a\tb\n\nc\td\te\n', 3, 'expected 2 tab-separated columns.* got 3'),
    ('Tsv', b'en\tde\tid\nc\td\n', 2, 'expected 3 tab-separated columns.* got 2'),
    (
      'JsonLines',
      b'{"en":"a","de":"b"}\n{"en":"a","de',
      2,
      'texts en and de, .* got no JSON',
    ),
    ('JsonLines', b'[' * 100_000, 1, 'got no JSON'),
    ('JsonLines', b'["a", "b"]', 1, 'got no object'),
    ('JsonLines', b'{"en": "a", "de": null, "id": 3}', 1, 'got texts named en;'),
    ('JsonLines', b'{"translation": {"fr": "a"}}', 1, 'got texts named fr;'),
    ('JsonLines', b'{}', 1, 'got no texts'),
    ('JsonLines', rb'{"en": "\ud800", "de": "b"}', 1, 'surrogates not allowed'),
  ],
)
def test_a_broken_line_is_named(tmp_path, kind, data, line, facts):
  with pytest.raises(UserError, match=rf'train\.\w+, line {line}: .*{facts}') as caught:
    open_table(tmp_path, kind, data)
  assert '\n' not in str(caught.value) and len(str(caught.value)) < 500


def test_other_user_errors_match_text_files(tmp_path):
  with pytest.raises(
    UserError, match=r'.*train\.tsv cannot be opened: .*contains no files'
  ):
    open_in(tmp_path, f'{tabular.__name__}:Tsv')
  for data, fact in (
    (b'a\tb\n\xff\t\n', r'train\.tsv must be UTF-8; line 2'),
    (b'en\tde\n', r"split 'train', is empty"),
  ):
    with pytest.raises(UserError, match=fact):
      open_table(tmp_path, 'Tsv', data)
  (note,) = open_table(tmp_path, 'Tsv', b'a\tb\r\nc\rd\te\n').notes
  assert 'train.tsv: its 2 lines contain 1 carriage returns' in note


def test_line_feeds_within_a_text_become_spaces(tmp_path):
  rows = [{'en': 'a\n\nb\n', 'de': 'c\r\nd'}, {'en': 'e', 'de': 'f'}]
  corpus = open_table(tmp_path, 'JsonLines', '\n'.join(map(json.dumps, rows)).encode())
  assert corpus[:] == [('a  b', 'c d'), ('e', 'f')]
  (note,) = corpus.notes
  assert 'train.jsonl: 2 texts have line feeds' in note


def test_wrong_columns_of_a_custom_table_are_a_one_line_error(tmp_path):
  class Tatoeba(tabular.Tsv):
    columns = 1, 3

  (tmp_path / 'train.tsv').write_bytes(b'1\ta\t2\tb\n3\tc\t4\td\n')
  assert Tatoeba(DataConfig('x:Y', dir=str(tmp_path)), 'train')[:] == [
    ('a', 'b'),
    ('c', 'd'),
  ]


@pytest.mark.long
def test_a_run_trains_on_tables_and_is_scored_as_on_text_files(
  train, evaluate, folder, trained, tmp_path
):
  for split in ('train', 'valid', 'test'):
    sides = [
      (folder / f'{split}.{language}').read_text('utf-8').split('\n')[:-1]
      for language in ('en', 'de')
    ]
    rows = ''.join(
      f'{source}\t{target}\n' for source, target in zip(*sides, strict=True)
    )
    (tmp_path / f'{split}.tsv.gz').write_bytes(gzip.compress(rows.encode()))
  run = tmp_path / 'run'
  status, _, err = train(
    f'--config={folder}/tiny.py',
    f'--workdir={run}',
    f'--config.data.source={tabular.__name__}:Tsv',
    f'--config.data.dir={tmp_path}',
  )
  assert status == 0, err
  losses = [
    [
      row['valid/loss']
      for row in read_metrics(path / 'metrics.jsonl')
      if 'valid/loss' in row
    ]
    for path in (run, trained)
  ]
  assert losses[0] == losses[1] and losses[0]
  for name, path in (('table', run), ('text', trained)):
    status, out, err = evaluate(
      f'--workdir={path}',
      '--checkpoint=latest',
      f'--results={tmp_path}/{name}',
      f'--output={tmp_path}/{name}.out',
    )
    assert status == 0 and '2 sentences' in out, err
  assert (tmp_path / 'table.out').read_bytes() == (tmp_path / 'text.out').read_bytes()
