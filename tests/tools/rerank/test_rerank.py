"""N-best lists are reranked by their candidates."""

import pytest

from transformer.tools.rerank.mbr import read_lists, select_by_mbr


@pytest.fixture(scope='module')
def rerank(start_command):
  yield from start_command('transformer.tools.rerank.__main__')


def test_samples_are_weighed(rerank, evaluate, trained, tmp_path):
  status, _, err = evaluate(
    f'--workdir={trained}',
    f'--results={tmp_path}/results',
    '--sample',
    '--nbest=4',
    '--beam_size=4',
    f'--output={tmp_path}/nbest',
  )
  assert status == 0, err
  status, _, err = rerank(f'--candidates={tmp_path}/nbest', f'--output={tmp_path}/out')
  assert status == 0, err
  lists = read_lists(tmp_path / 'nbest')
  assert [len(texts) for texts in lists] == [4, 4]
  assert (tmp_path / 'out').read_text('utf-8').split('\n')[:-1] == select_by_mbr(
    lists, 1
  )


def test_the_choices_go_to_standard_output(rerank, tmp_path):
  texts = [
    'no such thing',
    'a cat sat on the mat',
    'the cat sat on the mat',
    'the cat sat on a mat',
  ]
  (tmp_path / 'nbest').write_text(
    ''.join(f'0 ||| {text} ||| -1.5\n' for text in texts) + '1 |||  ||| 0.000000\n',
    'utf-8',
  )
  status, out, err = rerank(f'--candidates={tmp_path}/nbest')
  assert (status, out) == (0, 'the cat sat on the mat\n\n'), err


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    ([], '--candidates is missing; pass'),
    (
      ['--candidates={folder}/config'],
      'line 1 of {folder}/config should be NUMBER ||| TEXT',
    ),
    (['--candidates={folder}/other'], 'line 2 of {folder}/other should be'),
    (['--candidates={folder}/none'], 'it is empty'),
    (
      ['--candidates={folder}/other', '--output={folder}/other'],
      'would overwrite',
    ),
  ],
)
def test_user_error_is_a_one_line_message(rerank, tmp_path, flags, fact):
  (tmp_path / 'config').write_text('{}\n')
  (tmp_path / 'other').write_text('0 ||| a ||| -1\n2 ||| a ||| -1\n')
  (tmp_path / 'none').write_text('')
  assert fact.format(folder=tmp_path) in rerank.rejects(
    *(flag.format(folder=tmp_path) for flag in flags)
  )
