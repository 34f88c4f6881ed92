"""A prompt: translates each typed line, and obeys commands, which begin with a colon.

The standard library's `cmd` is not used, since it takes the first word of any line for a command.
It could not translate a sentence that begins with "help" or "?".
"""

import functools
import sys
from collections.abc import Callable

from transformer.data.text.text_files import is_blank
from transformer.decoding.config import Decoding
from transformer.decoding.constraint import Prefixes
from transformer.decoding.pairs import warn_of_cut
from transformer.decoding.trained_run import TrainedRun
from transformer.errors import UserError, shown

HELP = """A line is translated, unless it is a command:
  :beam 8     search with 8 beams
  :alpha 1    use length penalty 1
  :nbest 3    give 3 translations with their scores
  :prefix Da  begin each translation with these words; :prefix alone ends that
  :quit       end, as Ctrl-D does"""
_SETTINGS = {':beam': ('beam_size', int), ':alpha': ('alpha', float), ':nbest': ('nbest', int)}


def run_prompt(run: TrainedRun, decoding: Decoding):
  """Runs a prompt in this terminal; `decoding` holds at first."""
  import readline  # noqa: F401  Lines can then be edited, and recalled with the arrow keys.

  sys.stdin.reconfigure(encoding='utf-8', errors='replace')
  sys.stdout.reconfigure(encoding='utf-8', newline='\n')
  print(f'{run.workdir}, step {run.steps[-1]}: type a line to translate it, or :help')
  converse(functools.partial(input, '> '), print, run, decoding)


def converse(
  read: Callable[[], str], say: Callable[[str], None], run: TrainedRun, decoding: Decoding
):
  """Translates what `read` returns and obeys commands, until it raises EOFError.

  A mistake is said in one line, and changes nothing.
  """
  decoding = decoding.changed(batch_size=1)
  number = 0
  prefix = ''
  run.translator(decoding)
  while True:
    try:
      line = read().strip()
    except EOFError:
      return
    name, _, value = line.partition(' ')
    try:
      if name == ':quit':
        return
      if name == ':help':
        say(HELP)
      elif name == ':prefix':
        prefix = value.strip()
      elif line.startswith(':'):
        changed = _obey(decoding, name, value)
        run.translator(changed)  # It refuses settings that do not suit the run.
        decoding = changed
      elif not is_blank(line):
        (answer,) = run.answers([line], decoding, number, Prefixes([prefix]))
        warn_of_cut([answer.cut], run.config.data.max_length)
        number += 1
        say(
          answer.text
          if decoding.nbest == 1
          else '\n'.join(f'{score:9.4f}  {text}' for text, score in answer.nbest)
        )
    except UserError as error:
      say(f'error: {error}')


def _obey(decoding: Decoding, name: str, value: str) -> Decoding:
  """Returns how to translate after a command."""
  if name not in _SETTINGS:
    raise UserError(f'there is no command {name}; :help lists the commands')
  setting, kind = _SETTINGS[name]
  try:
    number = kind(value)
  except ValueError as error:
    raise UserError(f'{name} needs a number; got {shown(value)}') from error
  fewer = {'nbest': min(decoding.nbest, max(number, 1))} if setting == 'beam_size' else {}
  return decoding.changed(**{setting: number}, **fewer)
