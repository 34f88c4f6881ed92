"""`documents` translates joined lines, and scores documents; a mistake is one line."""

import json

import pytest

from tests.running_commands import ENGLISH, GERMAN
from transformer.evaluation.texts import Text
from transformer.tools.documents.parts import cut, joined

LINES = ['', 'a b', 'c', 'd', ' ', '', 'a b c d a b c d a b', 'e', 'f']


class Words:
  """A vocabulary with a token for each word."""

  def encode_batch(self, lines):
    return [[9] * len(line.split()) for line in lines]


@pytest.fixture(scope='module')
def documents(start_command):
  yield from start_command('transformer.tools.documents.__main__')


@pytest.fixture(scope='module')
def compare(start_command):
  yield from start_command('transformer.tools.compare.__main__', takes_arguments=True)


@pytest.mark.parametrize(
  ('most_tokens', 'most_lines', 'parts'),
  [
    (99, 0, [[range(1, 4)], [range(6, 9)]]),
    (99, 2, [[range(1, 3), range(3, 4)], [range(6, 8), range(8, 9)]]),
    (
      99,
      1,
      [
        [range(1, 2), range(2, 3), range(3, 4)],
        [range(6, 7), range(7, 8), range(8, 9)],
      ],
    ),
    # Five tokens are 'a b', 'c' and 'd', and the end. The line that is too long stands alone.
    (5, 0, [[range(1, 4)], [range(6, 7), range(7, 9)]]),
    (4, 0, [[range(1, 3), range(3, 4)], [range(6, 7), range(7, 9)]]),
  ],
  ids=str,
)
def test_documents_are_cut_at_empty_lines_and_where_no_line_fits(
  most_tokens, most_lines, parts
):
  made, numbers = cut(LINES, Words(), most_tokens, most_lines)
  assert [[made[number] for number in document] for document in numbers] == parts
  assert cut(['', ''], Words(), most_tokens, most_lines) == ([], [])
  text = joined(Text('name', LINES, [LINES]), [range(1, 3), range(7, 9)], ' ', '')
  assert text == Text('name', ['a b c', 'e f'], [['a bc', 'ef']])


@pytest.mark.long
def test_documents_have_results_of_their_own_that_can_be_compared(
  documents, compare, trained, tmp_path
):
  for name, lines in (('en', ENGLISH), ('de', GERMAN)):
    (tmp_path / name).write_text('\n'.join([*lines[1:3], '', lines[3], '']), 'utf-8')
  flags = [f'--workdir={trained}', '--beam_size=2', f'--source={tmp_path}/en']
  scored = [*flags, f'--reference={tmp_path}/de', f'--results={tmp_path}']
  for more in ([], ['--lines=1']):
    status, out, err = documents(*scored, *more, f'--output={tmp_path}/{len(more)}')
    assert status == 0 and f'2 documents in {3 if more else 2} parts' in err, err
    assert ': 2 sentences in ' in out and '  BLEU  ' in out
  whole, by_line = sorted(
    tmp_path.glob('en.????????.documents.step2.beam2.alpha0.6.lines?.json')
  )
  text = json.loads(whole.read_bytes())['text']
  rows = list(
    map(json.loads, whole.with_suffix('.sentences.jsonl').read_bytes().splitlines())
  )
  assert [row['source'] for row in rows] == [' '.join(ENGLISH[1:3]), ENGLISH[3]]
  assert [row['references'] for row in rows] == [[' '.join(GERMAN[1:3])], [GERMAN[3]]]
  assert (tmp_path / '0').read_text('utf-8').splitlines() == [
    row['translation'] for row in rows
  ]
  status, out, err = compare(str(whole), str(by_line), '--allow_unequal_decoding')
  assert status == 0 and f'{text}, 2 sentences' in out, err
  status, out, err = documents(*flags)
  assert status == 0 and len(out.splitlines()) == 2, err


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    (['--lines=-1'], '--lines must be at least 0; got -1'),
    (['--split=test,valid'], '--split=test,valid names several texts; name one'),
    (['--checkpoint=all'], '--checkpoint=all is for eval.py'),
    (
      ['--source={folder}/holes.en', '--reference={folder}/test.de'],
      'is blank in one language and not in another',
    ),
    (
      ['--source={folder}/holes.de', '--reference={folder}/holes.de'],
      'there is nothing to score',
    ),
  ],
)
def test_a_mistake_is_one_line(documents, folder, trained, flags, fact):
  (folder / 'holes.en').write_text('a\n\n', 'utf-8')
  (folder / 'holes.de').write_text(' \n\n', 'utf-8')
  assert fact in documents.refuses(
    f'--workdir={trained}', *(flag.format(folder=folder) for flag in flags)
  )
