"""`attend` writes one page of what the model does, and a mistake is one line and no page."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.commands.test_scoring import change_params, diverged  # noqa: F401
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.runs.loading import load_run


@pytest.fixture(scope='module')
def attend(start_command):
  yield from start_command('transformer.tools.attend.__main__')

ROOT = pathlib.Path(__file__).parents[3]


def sentences_of(page):
  return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_a_sentence_and_the_translation_that_eval_finds(attend, evaluate, trained, tmp_path):
  sentence = 'two women climb a rock .'
  (tmp_path / 'in').write_text(f'{sentence}\n', encoding='utf-8')
  _, translation, _ = evaluate(f'--workdir={trained}', f'--source={tmp_path}/in', '--beam_size=2')
  status, out, err = attend(f'--workdir={trained}', f'--sentence={sentence}', '--beam_size=2',
                            f'--output={tmp_path}/new/page.html')
  assert status == 0, err
  assert re.fullmatch(rf'open {tmp_path}/new/page.html in a browser, \d+ kB\n', out)
  data = sentences_of((tmp_path / 'new' / 'page.html').read_text('utf-8'))
  assert (data['layers'], data['heads'], data['about']) == (1, 2, 'run, step 2')
  found, = data['sentences']
  vocabulary = Vocabulary.load(trained / 'vocabulary.model')
  for side, text in (('source', sentence), ('target', translation.rstrip('\n'))):
    pieces = [vocabulary.piece(token) for token in vocabulary.encode(text)]
    assert found[side] == [*pieces, '</s>']


def test_a_file_of_sentences_with_their_translations(attend, trained, tmp_path):
  (tmp_path / 'in').write_text('a dog\n\n  \nthe man\n', encoding='utf-8')
  (tmp_path / 'out').write_text('ein hund\nx\ny\nder mann\n', encoding='utf-8')
  status, page, err = attend(f'--workdir={trained}', f'--source={tmp_path}/in', '--output=-',
                             f'--translation={tmp_path}/out', '--checkpoint=latest', '--average=2')
  assert status == 0, err
  data = sentences_of(page)
  assert data['about'] == 'run, step 1, 2'
  assert [(each['number'], each['targetWords'][0][0]) for each in data['sentences']] == [
      (1, 'ein'), (4, 'der')]


@pytest.mark.long
def test_a_run_with_a_vocabulary_for_each_language_shows_the_pieces_of_both(
    attend, separate, folder):
  status, page, err = attend(f'--workdir={separate}', f'--source={folder}/test.en', '--output=-',
                             f'--translation={folder}/test.de')
  assert status == 0, err
  loaded = load_run(separate)
  for side, name in (('source', 'test.en'), ('target', 'test.de')):
    vocabulary = getattr(loaded.vocabulary, side)
    line = (folder / name).read_text('utf-8').splitlines()[0]
    pieces = [vocabulary.piece(token) for token in vocabulary.encode(line)]
    assert sentences_of(page)['sentences'][0][side][:-1] == pieces


def test_a_sentence_that_is_too_long_is_cut_and_told(attend, trained, folder, tmp_path):
  shutil.copytree(trained, tmp_path / 'run')
  status, out, err = attend(f'--workdir={tmp_path}/run', f'--source={folder}/long.en')
  page = tmp_path / 'run' / 'eval' / 'attention.html'  # The default place.
  assert status == 0 and f'open {page} in a browser' in out
  assert '2 of 2 sources were longer than data.max_length and were cut' in err
  found = sentences_of(page.read_text('utf-8'))['sentences']
  assert [(len(each['source']), each['cut'][0]) for each in found] == [(64, True)] * 2


@pytest.mark.parametrize(('flags', 'facts'), [
    ([], ['one of --sentence', '--source=FILE is needed']),
    (['--sentence=a', '--source=x'], ['not both']),
    (['--sentence='], ['--sentence= names nothing']),
    (['--sentence= '], ['nothing to look at', '--sentence is blank']),
    (['--source={folder}/empty'], ['nothing to look at', 'empty is blank']),
    (['--source=-'], ['nothing to look at', '- is blank']),
    (['--source=/nowhere/x'], ['/nowhere/x', 'there is no folder /nowhere']),
    (['--source={folder}/latin.de'], ['latin.de must be UTF-8; line 2 is not']),
    (['--sentence=a', '--translation=b', '--alpha=1'], ['--beam_size and --alpha are of a search']),
    (['--source={folder}/test.en', '--translation={folder}/unequal.de'],
     ['--translation must have a line for each', 'unequal.de has 3']),
    (['--source={folder}/test.en', '--translation=-'], ['--translation must name a file']),
    (['--sentence=a', '--average=0'], ['--average must be at least 1; got 0']),
    (['--sentence=a', '--beam_size=0'], ['--beam_size must be at least 1; got 0']),
    (['--sentence=a', '--checkpoint=9'], ['best, latest or one of the steps 1, 2']),
    (['--sentence=a', '--output={folder}'], ['--output must name a file', 'is a directory']),
    (['--sentence=a', '--output={folder}/empty/x'], ['--output needs a directory', 'is a file']),
    (['--source={folder}/test.en', '--translation={folder}/test.de', '--output={folder}/test.de'],
     ['would replace what is read', 'test.de']),
    (['--source={folder}/test.en', '--output={folder}/test.en'], ['would replace what is read']),
    (['--sentence=a', '--workdir='], ['--workdir=DIR is needed']),
    (['--sentence=a', '--workdir=/nowhere'], ['/nowhere holds no run']),
    (['--sentence=http://a', '--workdir=/nowhere'], ['/nowhere holds no run']),
])
def test_a_mistake_is_one_line_and_leaves_nothing(attend, folder, trained, flags, facts):
  flags = [flag.format(folder=folder) for flag in flags]
  message = attend.refuses(f'--workdir={trained}', *flags)
  for fact in facts:
    assert fact in message, message
  assert not (trained / 'eval' / 'attention.html').exists()


@pytest.mark.parametrize('given', [False, True])
def test_a_run_that_has_diverged_is_named(attend, diverged, tmp_path, given):  # noqa: F811
  for name in ('in', 'out'):
    (tmp_path / name).write_text('\n\na dog\n', encoding='utf-8')
  flags = [f'--translation={tmp_path}/out'] if given else []
  message = attend.refuses(f'--workdir={diverged}', f'--source={tmp_path}/in', *flags,
                           f'--output={tmp_path}/page.html')
  assert f'{diverged}, step 7, has diverged: the log-probabilities for line 3 are' in message
  assert not (tmp_path / 'page.html').exists()


def test_what_no_browser_would_open_is_refused_before_the_work(attend, trained, tmp_path):
  (tmp_path / 'in').write_text(f'{"a dog and " * 40}\n' * 5000, encoding='utf-8')
  message = attend.refuses(f'--workdir={trained}', f'--source={tmp_path}/in')
  assert '100,000,000 weights at most' in message and '122,880,000' in message


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can be somebody else')
def test_where_nothing_may_be_written_is_told_before_the_work(attend, trained, tmp_path):
  folder = tmp_path / 'mine'
  folder.mkdir(mode=0o755)
  message = attend.refuses(f'--workdir={trained}', '--sentence=a', f'--output={folder}/page.html',
                           user=4321)
  assert 'may not be written to' in message


@pytest.mark.parametrize(('flag', 'status'), [('--help', 0), ('--workdir=', 1)])
def test_help_and_a_mistake_do_not_wait_for_jax(flag, status):
  done = subprocess.run(
      [sys.executable, '-X', 'importtime', '-m', 'transformer.tools.attend', flag], cwd=ROOT,
      text=True, capture_output=True, stdin=subprocess.DEVNULL)
  assert done.returncode == status
  assert ('shows what every attention head looks at' in done.stdout) == (status == 0)
  imported = re.findall(r'^import time: .*\| +(\S+)$', done.stderr, re.MULTILINE)
  assert 'absl.flags' in imported
  assert not {'jax', 'flax', 'orbax', 'sentencepiece'} & {each.split('.')[0] for each in imported}
