"""Translations and scores as lines of text, and the lines of a pipe, translated as they arrive."""

import json
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Sequence

from transformer import files
from transformer.data.text.text_files import iterate_lines
from transformer.decoding.config import Decoding
from transformer.decoding.likelihoods import Likelihood
from transformer.decoding.pairs import warn_of_cut
from transformer.decoding.trained_run import TrainedRun
from transformer.decoding.translator import Translation
from transformer.system import outputs

# The most batches in one call of the translator, which sorts their lines by length.
_BATCHES_TOGETHER = 16


def as_lines(answers: Sequence[Translation], nbest: int, first: int = 0) -> list[str]:
  """Returns translations, or lists of up to `nbest` of them, as lines.

  A line of a list is number ||| text ||| score; the first sentence has the number `first`.
  """
  if nbest == 1:
    return [answer.text for answer in answers]
  return [
    f'{number} ||| {text} ||| {score:.6f}'
    for number, answer in enumerate(answers, first)
    for text, score in answer.nbest
  ]


def likelihood_lines(likelihoods: Sequence[Likelihood], by_token: bool) -> list[str]:
  """Returns a line for each likelihood.

  It has the log-probability, `nan` for a pair that is too long, a tab and the number of tokens;
  or it is a JSON object, with the pieces and their log-probabilities.
  """
  if by_token:
    return [json.dumps(pair._asdict(), ensure_ascii=False) for pair in likelihoods]
  return [
    ('nan' if log_prob is None else f'{log_prob:.6f}') + f'\t{tokens}'
    for log_prob, tokens, _ in likelihoods
  ]


def write_lines(lines: Iterable[str], output: str):
  """Writes lines of UTF-8 to a file, or to standard output, which is `-`."""
  text = ''.join(f'{line}\n' for line in lines)
  if output == '-':
    sys.stdout.reconfigure(encoding='utf-8', newline='\n')
    print(text, end='', flush=True)
  else:
    outputs.write(files.as_path(output), text.encode())


def arrives_live() -> bool:
  """Returns whether standard input is a pipe or a terminal, whose lines arrive one by one."""
  return sys.stdin is not None and not stat.S_ISREG(os.fstat(0).st_mode)


def translate_pipe(run: TrainedRun, decoding: Decoding):
  """Translates standard input to standard output, each line as soon as it is read.

  Raises:
    UserError: a line is not text; the translations of the lines before it are written. Or the
      model has diverged; of the lines that were translated together, none is written.
  """
  cut = []

  def answer(lines, first):
    answers = run.answers(lines, decoding, first)
    cut.extend(translation.cut for translation in answers)
    write_lines(as_lines(answers, decoding.nbest, first), '-')

  # The file stays open: a thread waits for the next line, and after Ctrl-C, closing the file would
  # wait for this thread.
  file = open(0, 'rb', closefd=False)  # noqa: SIM115
  stream(
    iterate_lines(file, 'standard input'), answer, decoding.config.batch_size * _BATCHES_TOGETHER
  )
  warn_of_cut(cut, run.config.data.max_length)


def stream(lines: Iterable[str], answer: Callable[[Sequence[str], int], None], most: int):
  """Answers lines as they arrive, at most `most` together, in their order.

  `answer` takes lines and the number of the first. The lines that arrive during one call are the
  input of the next. Before an error of `lines` is raised, those before it are answered.
  """
  waiting: queue.Queue = queue.Queue(most)

  def fill():
    try:
      for line in lines:
        waiting.put(line)
    except Exception as error:  # Raised again in the thread that takes the lines.
      waiting.put(error)
    else:
      waiting.put(None)

  threading.Thread(target=fill, daemon=True).start()
  number = 0
  last = ''
  while isinstance(last, str):
    arrived = [waiting.get()]
    while len(arrived) < most and isinstance(arrived[-1], str) and not waiting.empty():
      arrived.append(waiting.get())
    last = arrived[-1]
    if texts := [line for line in arrived if isinstance(line, str)]:
      answer(texts, number)
      number += len(texts)
  if last is not None:
    raise last
