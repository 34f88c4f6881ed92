"""Translation of the lines of a pipe as they arrive."""

import dataclasses
import os
import queue
import stat
import threading
from collections.abc import Callable, Iterable, Sequence

from transformer.data.text.text_files import iterate_lines
from transformer.decoding.constraint import FREE
from transformer.decoding.ensemble import translate_with
from transformer.decoding.lines import as_lines, write_lines
from transformer.decoding.prefixes import Prefixes, split_prefixes
from transformer.decoding.translator import Translation, Translator, warn_of_cut
from transformer.errors import UserError
from transformer.runs.loading import Run

# The most batches in one call of the translator, which sorts their lines by length.
_BATCHES_TOGETHER = 16


def arrives_live() -> bool:
  """Returns whether standard input is a pipe or a terminal, whose lines arrive one by one.

  Raises:
    UserError: standard input is closed.
  """
  try:
    return not stat.S_ISREG(os.fstat(0).st_mode)
  except OSError as error:
    raise UserError('--source=- is standard input, which is closed; give it something, or name a '
                    'file') from error


def translate_pipe(members: Sequence[Run], translate: Translator, nbest: int,
                   prefixed: bool = False, drawn: bool = False):
  """Translates standard input to standard output, each line as soon as it is read.

  Args:
    members: the run, or the ensemble.
    translate: the translator of their models.
    nbest: the number of translations for each line.
    prefixed: whether a line has a second column, the beginning of its translation.
    drawn: whether translations are samples.

  Raises:
    UserError: a line is not text; the translations of the lines before it are written. Or a
      prefix is too long, or the model has diverged; of the lines that were translated together
      with that line, none is written.
  """
  cut = []

  def write(first, answers):
    cut.extend(answer.cut for answer in answers)
    write_lines(as_lines(answers, nbest, first, drawn), '-')

  def answer(lines, first):
    constraint = FREE
    if prefixed:
      lines, prefixes = split_prefixes(lines)
      constraint = Prefixes(prefixes)
    return translate_with(members, translate, lines, first, constraint)

  config = members[0].config
  # The file stays open: a thread waits for the next line, and after Ctrl-C, closing the file would
  # wait for this thread.
  file = open(0, 'rb', closefd=False)  # noqa: SIM115
  stream(iterate_lines(file, 'standard input'),
         answer, write, config.decode.batch_size * _BATCHES_TOGETHER)
  warn_of_cut(cut, config.data.max_length)


def stream(lines: Iterable[str], translate: Callable[[Sequence[str], int], list[Translation]],
           write: Callable[[int, list[Translation]], None], most: int):
  """Translates lines as they arrive, and writes the translations in the order of the lines.

  The lines that arrive during one call of `translate` are the input of the next call.

  Args:
    lines: the lines; the next one may take time to arrive.
    translate: takes lines and the number of the first.
    write: takes the number of the first line, and the translations.
    most: the largest number of lines that are translated together.

  Raises:
    UserError: a line cannot be read; the translations of the lines before it are written.
  """
  waiting: queue.Queue = queue.Queue(most)
  threading.Thread(target=_fill, args=(lines, waiting), daemon=True).start()
  number, end = 0, None
  while end is None:
    arrived = [waiting.get()]
    while len(arrived) < most and isinstance(arrived[-1], str) and not waiting.empty():
      arrived.append(waiting.get())
    if not isinstance(arrived[-1], str):
      end = arrived.pop()
    if arrived:
      write(number, translate(arrived, number))
      number += len(arrived)
  if end.error is not None:
    raise end.error


@dataclasses.dataclass(frozen=True)
class _End:
  """Follows the last line; holds the error if a line could not be read."""

  error: Exception | None


def _fill(lines: Iterable[str], waiting: queue.Queue):
  try:
    for line in lines:
      waiting.put(line)
  except Exception as error:  # Raised again in the thread that takes the lines.
    waiting.put(_End(error))
  else:
    waiting.put(_End(None))
