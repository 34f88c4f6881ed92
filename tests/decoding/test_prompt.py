"""Lines are answered in their order, each as soon as it can be."""

import os
import queue
import threading
import types

import pytest

from transformer.config import Config
from transformer.decoding import prompt, text_lines
from transformer.decoding.config import DecodeConfig, Decoding, SampleConfig
from transformer.decoding.translator import Translation, distinct
from transformer.errors import UserError


def test_a_list_holds_each_text_once_with_its_best_score():
  nbest = (('a b', -1.0), ('a c', -2.0), ('a b', -2.5), ('a', -3.0), ('a c', -4.0))
  answers = [
    Translation(*nbest[0], False, distinct(nbest)),
    Translation('', 0.0, False, (('', 0.0),)),
  ]
  assert text_lines.as_lines(answers, 5, 7) == [
    '7 ||| a b ||| -1.000000',
    '7 ||| a c ||| -2.000000',
    '7 ||| a ||| -3.000000',
    '8 |||  ||| 0.000000',
  ]


@pytest.mark.parametrize('count', [0, 1, 3, 4, 5, 23])
def test_a_stream_answers_every_line_in_its_order(count):
  lines, together = [f'line {number}' for number in range(count)], []

  def answer(some, first):
    assert first == sum(map(len, together))
    together.append(some)

  text_lines.stream(iter(lines), answer, 4)
  assert [line for some in together for line in some] == lines
  assert all(1 <= len(some) <= 4 for some in together)


def test_a_stream_answers_a_line_before_the_next_one_comes():
  given, answered = queue.Queue(), queue.Queue()
  thread = threading.Thread(
    target=text_lines.stream,
    args=(iter(given.get, None), lambda lines, first: answered.put((first, lines)), 4),
  )
  thread.start()
  try:
    for number, line in enumerate('abc'):
      given.put(line)
      assert answered.get(timeout=60) == (number, [line])
  finally:
    given.put(None)
    thread.join()


def test_lines_of_a_pipe_keep_their_numbers_in_draws_and_in_lists(capfdbinary, tmp_path):
  def answers(lines, decoding, first):
    texts = [f'{line} {first + place}' for place, line in enumerate(lines)]
    return [Translation(text, -1.0, False, ((text, -1.0), (text, -1.0))) for text in texts]

  (tmp_path / 'in').write_text(''.join(f'line {number}\n' for number in range(20)), 'utf-8')
  run = types.SimpleNamespace(answers=answers, config=Config())
  before = os.dup(0)
  try:
    with open(tmp_path / 'in', 'rb') as file:
      os.dup2(file.fileno(), 0)
    # At most 16 lines are translated together.
    text_lines.translate_pipe(run, Decoding(SampleConfig(batch_size=1, sample=True), 0, nbest=2))
  finally:
    os.dup2(before, 0)
    os.close(before)
  assert capfdbinary.readouterr().out.decode().splitlines() == [
    f'{number} ||| line {number} {number} ||| -1.000000' for number in range(20) for _ in range(2)
  ]


def test_what_comes_before_a_fault_is_answered():
  def lines():
    yield from ('one', 'two')
    raise UserError('line 3 is no text')

  answered = []
  with pytest.raises(UserError, match='line 3 is no text'):
    text_lines.stream(lines(), lambda some, first: answered.extend(some), 9)
  assert answered == ['one', 'two']


@pytest.fixture
def talk(monkeypatch):
  """What a prompt says to what is typed, and the settings of its translators."""
  monkeypatch.setattr(prompt, 'Prefixes', lambda lines: lines[0])

  def talk(*typed):
    said, settings, lines = [], [], iter(typed)

    def read():
      if (line := next(lines, None)) is None:
        raise EOFError
      return line

    def translator(decoding):
      config = decoding.config
      if config.beam_size > 9:
        raise UserError(f'{config.beam_size} are too many')
      settings.append((config.beam_size, config.alpha, decoding.nbest, config.batch_size))

    def answers(lines, decoding, number, constraint):
      (line,), prefix = lines, constraint
      if prefix == 'too long':
        raise UserError('a prefix is too long')
      texts = [f'{number} {prefix}{line}'.upper() + '!' * place for place in range(decoding.nbest)]
      return [
        Translation(
          texts[0], -1.0, False, tuple((text, -1.0 - place) for place, text in enumerate(texts))
        )
      ]

    run = types.SimpleNamespace(translator=translator, answers=answers, config=Config())
    prompt.converse(read, said.append, run, Decoding(DecodeConfig(beam_size=4, alpha=0.6), seed=0))
    return said, settings

  return talk


def test_a_prompt_translates_until_the_end_and_passes_over_blank_lines(talk):
  assert talk('a', '', '  ', ' b ') == (['0 A', '1 B'], [(4, 0.6, 1, 1)])
  assert talk('a', ':quit', 'b')[0] == ['0 A']
  (said,) = talk(':help')[0]
  assert all(f'  {name}' in said for name in (':beam', ':alpha', ':nbest', ':prefix', ':quit'))


def test_settings_and_prefixes_hold_from_then_on(talk):
  said, settings = talk(':nbest 3', 'a', ':beam 2', ':alpha 0', ':beam 5', 'b')
  assert settings == [
    (4, 0.6, 1, 1),
    (4, 0.6, 3, 1),
    (2, 0.6, 2, 1),
    (2, 0.0, 2, 1),
    (5, 0.0, 2, 1),
  ]
  assert said == [
    '  -1.0000  0 A\n  -2.0000  0 A!\n  -3.0000  0 A!!',
    '  -1.0000  1 B\n  -2.0000  1 B!',
  ]
  assert talk('a', ':prefix xy', 'b', 'c', ':prefix', 'd')[0] == ['0 A', '1 XYB', '2 XYC', '3 D']


@pytest.mark.parametrize(
  ('typed', 'fact'),
  [
    (':what', 'there is no command :what; :help'),
    (':beam', ":beam needs a number; got ''"),
    (':beam x', "got 'x'"),
    (':beam 0', 'beam_size must be at least 1; got 0'),
    (':alpha nan', 'alpha must be at least 0'),
    (':nbest 5', 'nbest=5 needs as many beams'),
    (':beam 10', '10 are too many'),
    (':prefix too long', 'a prefix is too long'),
  ],
)
def test_a_mistake_is_one_line_and_changes_nothing(talk, typed, fact):
  said, settings = talk(typed, 'b', ':prefix', 'b')
  assert said[0].startswith('error: ') and fact in said[0] and '\n' not in said[0]
  assert said[-1].endswith(' B') and len(settings) == 1
