"""`attend` writes one page of what the model does, and a mistake is one line and no page."""

import json
import re
import shutil

import pytest

from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.runs.loading import load_run


@pytest.fixture(scope='module')
def attend(start_command):
  yield from start_command('transformer.tools.attend.__main__')


def sentences_of(page):
  return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_a_sentence_and_the_translation_that_eval_finds(
  attend, evaluate, trained, tmp_path
):
  sentence = 'two women climb a rock .'
  (tmp_path / 'in').write_text(f'{sentence}\n', encoding='utf-8')
  _, translation, _ = evaluate(
    f'--workdir={trained}', f'--source={tmp_path}/in', '--beam_size=2'
  )
  status, out, err = attend(
    f'--workdir={trained}',
    f'--sentence={sentence}',
    '--beam_size=2',
    f'--output={tmp_path}/new/page.html',
  )
  assert status == 0, err
  assert re.fullmatch(rf'open {tmp_path}/new/page.html in a browser, \d+ kB\n', out)
  data = sentences_of((tmp_path / 'new' / 'page.html').read_text('utf-8'))
  assert (data['layers'], data['heads'], data['about']) == (1, 2, 'run, step 2')
  (result,) = data['sentences']
  vocabulary = Vocabulary.load(trained / 'vocabulary.model')
  for side, text in (('source', sentence), ('target', translation.rstrip('\n'))):
    pieces = [vocabulary.piece(token) for token in vocabulary.encode(text)]
    assert result[side] == [*pieces, '</s>']


@pytest.mark.long
def test_a_file_of_sentences_with_their_translations_by_a_run_with_two_vocabularies(
  attend, trained, separate, tmp_path
):
  (tmp_path / 'in').write_text('a dog\n\n  \nthe man\n', encoding='utf-8')
  (tmp_path / 'out').write_text('ein hund\nx\ny\nder mann\n', encoding='utf-8')
  flags = [f'--source={tmp_path}/in', f'--translation={tmp_path}/out', '--output=-']
  status, page, err = attend(f'--workdir={separate}', *flags)
  assert status == 0, err
  vocabulary, shown = load_run(separate).vocabulary, sentences_of(page)['sentences'][0]
  for side, text in (('source', 'a dog'), ('target', 'ein hund')):
    language = getattr(vocabulary, side)
    assert shown[side][:-1] == [
      language.piece(token) for token in language.encode(text)
    ]
  status, page, err = attend(
    f'--workdir={trained}', *flags, '--checkpoint=latest', '--average=2'
  )
  assert status == 0, err
  data = sentences_of(page)
  assert data['about'] == 'run, step 1, 2'
  assert [
    (item['number'], item['targetWords'][0][0]) for item in data['sentences']
  ] == [
    (1, 'ein'),
    (4, 'der'),
  ]


def test_a_sentence_that_is_too_long_is_cut_and_told(attend, trained, folder, tmp_path):
  shutil.copytree(trained, tmp_path / 'run')
  status, out, err = attend(f'--workdir={tmp_path}/run', f'--source={folder}/long.en')
  page = tmp_path / 'run' / 'eval' / 'attention.html'  # The default place.
  assert status == 0 and f'open {page} in a browser' in out
  assert '2 of 2 sources were longer than data.max_length and were cut' in err
  result = sentences_of(page.read_text('utf-8'))['sentences']
  assert [(len(item['source']), item['cut'][0]) for item in result] == [(64, True)] * 2


@pytest.mark.parametrize(
  ('flags', 'facts'),
  [
    ([], ['one of --sentence', '--source=FILE is needed']),
    (['--sentence=a', '--source=x'], ['not both']),
    (['--sentence= '], ['nothing to look at', '--sentence is blank']),
    (['--sentence=\udcff'], ['--sentence must be UTF-8', r"b'\xff'"]),
    (['--sentence=a', '--translation=\udcff'], ['--translation must be UTF-8']),
    (['--sentence=a', '--output={run}/config.json'], ['would replace what is read']),
    (
      ['--sentence=a', '--translation=b', '--alpha=1'],
      ['--beam_size and --alpha are of a search'],
    ),
    (
      ['--source={folder}/test.en', '--translation={folder}/unequal.de'],
      ['--translation must have a line for each', 'unequal.de has 3'],
    ),
    (
      ['--source={folder}/test.en', '--translation=-'],
      ['--translation must name a file'],
    ),
    (
      [
        '--source={folder}/test.en',
        '--translation={folder}/test.de',
        '--output={folder}/test.de',
      ],
      ['would replace what is read', 'test.de'],
    ),
    (['--sentence=a', '--workdir=/nowhere'], ['/nowhere holds no run']),
  ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
  attend, folder, trained, flags, facts
):
  message = attend.refuses(
    f'--workdir={trained}', *(flag.format(folder=folder, run=trained) for flag in flags)
  )
  assert all(fact in message for fact in facts), message
  assert not (trained / 'eval' / 'attention.html').exists()


def test_what_no_browser_would_open_is_refused_before_the_work(
  attend, trained, tmp_path
):
  (tmp_path / 'in').write_text(f'{"a dog and " * 40}\n' * 5000, encoding='utf-8')
  message = attend.refuses(f'--workdir={trained}', f'--source={tmp_path}/in')
  assert '100,000,000 weights at most' in message and '122,880,000' in message
