"""Lines are answered in their order, each as soon as it can be."""

import queue
import threading

import pytest

from transformer.decoding import prompt, text_lines
from transformer.decoding.config import DecodeConfig
from transformer.decoding.text_lines import as_lines
from transformer.decoding.translator import Translation
from transformer.errors import UserError


def answer(text, nbest=1):
  texts = tuple((f'{text.upper()}{place}' if place else text.upper(), -1.0 - place)
                for place in range(nbest))
  return Translation(*texts[0], False, texts)


class Streamed:
  """A stream that is fed, and what it wrote."""

  def __init__(self, lines, most=4):
    self.together, self.written = [], []
    text_lines.stream(lines, self._translate, self._write, most)

  def _translate(self, lines, first):
    self.together.append(list(lines))
    return [answer(line) for line in lines]

  def _write(self, first, answers):
    assert first == len(self.written)
    self.written += [each.text for each in answers]


def test_a_list_holds_each_text_once_with_its_best_score():
  nbest = (('a b', -1.0), ('a c', -2.0), ('a b', -2.5), ('a', -3.0), ('a c', -4.0))
  answers = [Translation(*nbest[0], False, nbest), Translation('', 0.0, False, (('', 0.0),))]
  assert as_lines(answers, 5, 7) == [
      '7 ||| a b ||| -1.000000', '7 ||| a c ||| -2.000000', '7 ||| a ||| -3.000000',
      '8 |||  ||| 0.000000']
  said = []
  prompt.converse(reader(['x']), said.append, lambda *_: lambda *_: answers[0],
                  DecodeConfig(), 5)
  assert [line.split('  ')[-1] for line in said[0].splitlines()] == ['a b', 'a c', 'a']


@pytest.mark.parametrize('count', [0, 1, 3, 4, 5, 23])
def test_a_stream_answers_every_line_in_its_order(count):
  lines = [f'line {number}' for number in range(count)]
  done = Streamed(iter(lines))
  assert done.written == [line.upper() for line in lines]
  assert all(1 <= len(each) <= 4 for each in done.together)


def test_a_stream_answers_a_line_before_the_next_one_comes():
  given, answered = queue.Queue(), queue.Queue()

  def lines():
    while (line := given.get()) is not None:
      yield line

  thread = threading.Thread(target=text_lines.stream, args=(
      lines(), lambda lines, first: [answer(line) for line in lines],
      lambda first, answers: answered.put((first, [each.text for each in answers])), 4))
  thread.start()
  try:
    for number, line in enumerate('abc'):
      given.put(line)
      assert answered.get(timeout=60) == (number, [line.upper()])
  finally:
    given.put(None)
    thread.join()


def test_what_comes_before_a_fault_is_answered():
  def lines():
    yield from ('one', 'two')
    raise UserError('line 3 is no text')

  written = []
  with pytest.raises(UserError, match='line 3 is no text'):
    text_lines.stream(lines(), lambda lines, first: [answer(line) for line in lines],
                  lambda first, answers: written.extend(each.text for each in answers), 9)
  assert written == ['ONE', 'TWO']


def reader(typed):
  """Returns a function that returns one line after the other, as `input` does."""
  lines = iter(typed)

  def read():
    line = next(lines, None)
    if line is None:
      raise EOFError
    return line

  return read


def talk(*typed, nbest=1):
  """What a prompt says to what is typed, and the settings that it asked translators of."""
  said, asked = [], []

  def make_translator(decode, nbest):
    if nbest > decode.beam_size:
      raise UserError(f'{nbest} is more than {decode.beam_size}')
    asked.append((decode.beam_size, decode.alpha, nbest, decode.batch_size))
    return lambda line, number, prefix: answer(f'{number} {prefix}{line}', nbest)

  prompt.converse(reader(typed), said.append, make_translator,
                  DecodeConfig(beam_size=4, alpha=0.6), nbest)
  return said, asked


def test_a_prompt_translates_until_the_end_and_passes_over_blank_lines():
  said, asked = talk('a', '', '  ', ' b ')
  assert said == ['0 A', '1 B'] and asked == [(4, 0.6, 1, 1)]
  assert talk('a', ':quit', 'b')[0] == ['0 A']


def test_settings_hold_from_then_on():
  said, asked = talk(':nbest 3', 'a', ':beam 2', ':alpha 0', ':beam 5', 'b')
  assert asked == [(4, 0.6, 1, 1), (4, 0.6, 3, 1), (2, 0.6, 2, 1), (2, 0.0, 2, 1), (5, 0.0, 2, 1)]
  assert said == ['  -1.0000  0 A\n  -2.0000  0 A1\n  -3.0000  0 A2',
                  '  -1.0000  1 B\n  -2.0000  1 B1']


def test_a_prefix_holds_until_it_is_taken_back():
  assert talk('a', ':prefix xy', 'b', 'c', ':prefix', 'd')[0] == ['0 A', '1 XYB', '2 XYC', '3 D']


def test_a_prefix_that_is_too_long_is_one_line():
  def refuse(line, number, prefix):
    if prefix:
      raise UserError('too long')
    return answer(line)

  said, typed = [], iter(['a', ':prefix x', 'a', ':prefix', 'b', ':quit'])
  prompt.converse(lambda: next(typed), said.append, lambda *_: refuse, DecodeConfig(), 1)
  assert said == ['A', 'error: too long', 'B']



@pytest.mark.parametrize(('typed', 'fact'), [
    (':what', 'there is no command :what; :help'), (':beam', ":beam needs a number; got ''"),
    (':beam x', "got 'x'"), (':beam 0', 'decode.beam_size must be at least 1; got 0'),
    (':alpha nan', 'decode.alpha must be at least 0'), (':nbest 5', '5 is more than 4')])
def test_a_mistake_is_one_line_and_changes_nothing(typed, fact):
  said, asked = talk('a', typed, 'b')
  assert said[1].startswith('error: ') and fact in said[1] and '\n' not in said[1]
  assert [said[0], said[2]] == ['0 A', '1 B'] and len(asked) == 1


def test_help_names_every_command():
  said, _ = talk(':help')
  assert all(f'  {name}' in said[0] for name in (':beam', ':alpha', ':nbest', ':prefix', ':quit'))
