"""Translating lines as they come: typed at a prompt, or out of a pipe."""

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from transformer.errors import UserError
from transformer.inference.config import DecodeConfig
from transformer.inference.translate import Translation

HELP = """A line is translated. What begins with a colon is not:
  :beam 8     search with so many beams
  :alpha 1    with this length penalty
  :nbest 3    give so many translations, with their scores
  :attend     open a page of what the model attended to in the last sentence
  :quit       end, as Ctrl-D does"""

# Gives the translator of a way to decode, for lists of so many: (lines, number of the first) ->
# translations.
MakeTranslator = Callable[[DecodeConfig, int], Callable[[Sequence[str], int], list[Translation]]]


def stream(lines: Iterable[str], translate: Callable[[Sequence[str], int], list[Translation]],
           write: Callable[[int, list[Translation]], None], most: int):
  """Translates lines as they come, and writes them in their order.

  What has come by the time that the last ones are written is translated together.

  Args:
    lines: may have to be waited for.
    translate: takes lines and the number of the first.
    write: takes that number, and their translations.
    most: lines that are translated together.

  Raises:
    UserError: a line cannot be read; those before it are written.
  """
  waiting: queue.Queue = queue.Queue(most)
  threading.Thread(target=_fill, args=(lines, waiting), daemon=True).start()
  number, end = 0, None
  while end is None:
    come = [waiting.get()]
    while len(come) < most and isinstance(come[-1], str) and not waiting.empty():
      come.append(waiting.get())
    if not isinstance(come[-1], str):
      end = come.pop()
    if come:
      write(number, translate(come, number))
      number += len(come)
  if end.error is not None:
    raise end.error


@dataclasses.dataclass(frozen=True)
class _End:
  """After the last line; why it is the last, if that is a fault."""

  error: Exception | None


def _fill(lines: Iterable[str], waiting: queue.Queue):
  try:
    for line in lines:
      waiting.put(line)
  except Exception as error:  # It is for whoever takes the lines.
    waiting.put(_End(error))
  else:
    waiting.put(_End(None))


def converse(read: Callable[[], str], say: Callable[[str], None], make_translator: MakeTranslator,
             decode: DecodeConfig, nbest: int, attend: Callable[[str, str], str]):
  """Translates what is typed, until the end of the input.

  Args:
    read: gives a line; raises EOFError where there is none.
    say: prints one, or several.
    make_translator: of these settings; raises `UserError` if they do not fit.
    decode: how to search at first; each line is searched for by itself.
    nbest: how many translations to give at first.
    attend: makes a page for a source and its translation, and says where it is.
  """
  settings = dataclasses.replace(decode, batch_size=1), nbest
  translate = make_translator(*settings)
  number, last = 0, None
  for line in _typed(read):
    if not line.startswith(':'):
      answer, = translate([line], number)
      number, last = number + 1, (line, answer.text)
      if settings[1] == 1:
        say(answer.text)
      else:
        say('\n'.join(f'{score:9.4f}  {text}' for text, score in answer.nbest))
      continue
    try:
      name, _, value = line.partition(' ')
      if name == ':quit':
        return
      if name == ':help':
        say(HELP)
      elif name == ':attend':
        if last is None:
          raise UserError(':attend is about the last sentence; type one first')
        say(attend(*last))
      else:
        asked = _changed(*settings, name, value)
        translate, settings = make_translator(*asked), asked
    except UserError as error:
      say(f'error: {error}')


def _typed(read: Callable[[], str]) -> Iterator[str]:
  """Lines in which there is something."""
  while True:
    try:
      line = read().strip()
    except EOFError:
      return
    if line:
      yield line


def _changed(decode: DecodeConfig, nbest: int, name: str, value: str) -> tuple[DecodeConfig, int]:
  """The settings after a command.

  Raises:
    UserError: there is no such command, or its value cannot be.
  """
  kinds = {':beam': int, ':alpha': float, ':nbest': int}
  if name not in kinds:
    raise UserError(f'there is no {name}; :help tells what there is')
  try:
    number = kinds[name](value)
  except ValueError as error:
    raise UserError(f'{name} needs a number; got {value!r}') from error
  if name == ':nbest':
    return decode, number
  return dataclasses.replace(decode, **{{':beam': 'beam_size', ':alpha': 'alpha'}[name]: number}), (
      min(nbest, number) if name == ':beam' else nbest)
