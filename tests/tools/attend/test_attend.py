"""`attend` writes one page about the model; a user error is one line and no page."""

import json
import re

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
def test_sentences_with_their_translations_by_a_run_with_two_vocabularies(
  attend, trained, separate
):
  flags = [
    '--sentence=a dog',
    '--sentence=the man',
    '--translation=ein hund',
    '--translation=der mann',
    '--output=-',
  ]
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
  assert [item['targetWords'][0][0] for item in data['sentences']] == ['ein', 'der']


@pytest.mark.parametrize(
  ('flags', 'facts'),
  [
    ([], ['--sentence is missing or blank']),
    (['--sentence= '], ['is missing or blank']),
    (['--sentence=\udcff'], ['must be UTF-8', r"b'\xff'"]),
    (['--sentence=a', '--translation=\udcff'], ['--translation must be UTF-8']),
    (['--sentence=a', '--sentence=b', '--translation=c'], ['got 1 for 2']),
    (['--sentence=a', '--output={run}/config.json'], ['would overwrite']),
    (
      ['--sentence=a', '--translation=b', '--alpha=1'],
      ['remove --beam_size and --alpha'],
    ),
    (['--sentence=a', '--workdir=/nowhere'], ['/nowhere holds no run']),
  ],
)
def test_user_error_is_a_one_line_message_and_leaves_no_files(
  attend, folder, trained, flags, facts
):
  message = attend.rejects(
    f'--workdir={trained}', *(flag.format(folder=folder, run=trained) for flag in flags)
  )
  assert all(fact in message for fact in facts), message
  assert not (trained / 'eval' / 'attention.html').exists()
