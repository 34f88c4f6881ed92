"""`constrain` translates with words that must or must not appear; a user error is one line."""

import pytest

from transformer.tools.constrain.lexical_constraint import lacks_phrase


@pytest.fixture(scope='module')
def constrain(start_command):
  yield from start_command('transformer.tools.constrain.__main__')


@pytest.mark.long
def test_required_words_appear_and_have_separate_results(
  constrain, evaluate, folder, trained, tmp_path
):
  (tmp_path / 'words').write_text('hund\tdas gras\n\n', encoding='utf-8')
  flags = [f'--workdir={trained}', '--beam_size=2']
  scored = [*flags, f'--results={tmp_path}', '--output=-']
  _, free, _ = evaluate(*scored)
  status, out, err = constrain(*scored, f'--require={tmp_path}/words')
  assert status == 0 and 'lack words' not in err, err
  first, second = out.splitlines()
  assert (
    not lacks_phrase(first, ['hund', 'das gras']) and second == free.splitlines()[1]
  )
  assert len(list(tmp_path.glob('test.step2.beam2.alpha0.6.require*.json'))) == 1
  # With a prefix and a list; words that are also forbidden are missing, with a warning.
  (tmp_path / 'begins').write_text('der\nein\n', encoding='utf-8')
  (tmp_path / 'forbidden').write_text('hund\n', encoding='utf-8')
  status, out, err = constrain(
    *flags,
    f'--source={folder}/test.en',
    f'--require={tmp_path}/words',
    f'--prefix={tmp_path}/begins',
    f'--avoid={tmp_path}/forbidden',
    '--nbest=2',
    f'--ensemble={trained}',
  )
  assert status == 0 and '1 of 2 translations lack words that must appear' in err, err
  rows = [line.split(' ||| ') for line in out.splitlines()]
  assert {number for number, _, _ in rows} == {'0', '1'}
  assert all(
    text.startswith('der' if number == '0' else 'ein') for number, text, _ in rows
  )
  assert not any('hund' in text.split() for _, text, _ in rows)


@pytest.mark.parametrize(
  ('flags', 'facts'),
  [
    ([], ['--avoid=FILE or --prefix=FILE']),
    (['--source=-', '--avoid=-'], ['only --source can be standard input']),
    (
      ['--split=test,valid', '--avoid=x'],
      ['--require, --avoid and --prefix are for one split'],
    ),
    (['--sample', '--require={folder}/test.de'], ['remove --sample']),
    (
      [
        '--search=transformer.ops.beam_search:beam_search',
        '--require={folder}/test.de',
      ],
      ['pass --search=default'],
    ),
    (
      ['--require={folder}/unequal.de'],
      [
        '--require must have one line per source sentence',
        'unequal.de has 3 lines',
      ],
    ),
    (
      ['--require={folder}/long.en'],
      [
        'the phrases that must appear in translation 1 must have fewer tokens than its limit',
        'decode.max_extra_length',
      ],
    ),
    (
      ['--avoid={folder}/empty'],
      ['--avoid must name a file with words or phrases', 'empty has'],
    ),
  ],
)
def test_user_error_is_a_one_line_message(constrain, folder, trained, flags, facts):
  flags = [flag.format(folder=folder) for flag in flags]
  message = constrain.rejects(f'--workdir={trained}', *flags)
  for fact in facts:
    assert fact in message, message
  assert not list(trained.glob('eval/*.json'))
