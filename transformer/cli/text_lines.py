"""Writes translations as lines; translates the lines of a pipe or terminal as they arrive."""

import contextlib
import dataclasses
import itertools
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence

from transformer import files
from transformer.data.text.text_files import iterate_lines
from transformer.decoding.config import DecodeOptions
from transformer.decoding.translator import Translation
from transformer.system import outputs
from transformer.trained_run import TrainedRun

# Batches of a pipe per call of the translator, which sorts their lines by length.
_BATCHES_TOGETHER = 16


def as_lines(
  translations: Sequence[Translation], nbest: int, first: int = 0
) -> list[str]:
  """Returns translations as lines; with `nbest` above 1, as lines of n-best lists.

  Such a line is `number ||| text ||| score`; sentences are numbered from `first`.
  """
  if nbest == 1:
    return [translation.text for translation in translations]
  return [
    f'{index} ||| {text} ||| {score:.6f}'
    for index, translation in enumerate(translations, first)
    for text, score in translation.nbest
  ]


def write_lines(lines: Iterable[str], output: str):
  """Writes lines in UTF-8 to a file, or to standard output if `output` is `-`."""
  text = ''.join(f'{line}\n' for line in lines)
  if output == '-':
    sys.stdout.reconfigure(encoding='utf-8', newline='\n')
    print(text, end='', flush=True)
  else:
    outputs.write(files.as_path(output), text.encode())


def stdin_is_live() -> bool:
  """Returns whether standard input is a pipe or a terminal, whose lines arrive one by one."""
  return sys.stdin is not None and not stat.S_ISREG(os.fstat(0).st_mode)


def translate_stdin(run: TrainedRun, decoding: DecodeOptions):
  """Translates lines of a terminal one by one, or of a pipe several batches at a time.

  With `batch_size=1`, the lines of a pipe are also translated one by one.
  """
  if sys.stdin.isatty() and sys.stdout.isatty():
    print(
      f'{run.workdir}, step {run.checkpoint_steps[-1]}: type a line to translate it; Ctrl-D ends'
    )
    decoding = dataclasses.replace(decoding, batch_size=1)
    lines = _typed_lines()
  else:
    lines = iterate_lines(open(0, 'rb', closefd=False), 'standard input')  # noqa: SIM115
  together = decoding.batch_size * _BATCHES_TOGETHER if decoding.batch_size > 1 else 1
  offset = 0
  while batch := list(itertools.islice(lines, together)):
    translations = run.translations(batch, decoding, offset=offset)
    write_lines(as_lines(translations, decoding.nbest, offset), '-')
    offset += len(batch)


def _typed_lines() -> Iterator[str]:
  import readline  # noqa: F401  Adds line editing, and a history with the arrow keys.

  sys.stdin.reconfigure(encoding='utf-8', errors='replace')
  with contextlib.suppress(EOFError):
    while True:
      yield input('> ')
