"""A prompt: translates each typed line, and obeys commands, which begin with a colon.

The standard library's `cmd` is not used, since it takes the first word of any line for a command.
It could not translate a sentence that begins with "help" or "?".
"""

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence

from transformer.data.text.text_files import is_blank
from transformer.decoding.config import DecodeConfig
from transformer.decoding.ensemble import make_translator, translate_with
from transformer.decoding.prefixes import Prefixes
from transformer.decoding.text_lines import distinct
from transformer.decoding.translator import Translation, warn_of_cut
from transformer.errors import UserError
from transformer.runs.loading import Run

HELP = """A line is translated, unless it is a command:
  :beam 8     search with 8 beams
  :alpha 1    use length penalty 1
  :nbest 3    give 3 translations with their scores
  :prefix Da  begin each translation with these words; :prefix alone ends that
  :quit       end, as Ctrl-D does"""

# Builds a function (line, number of the line, prefix) -> translation from the settings of a search
# and the number of translations for each line.
MakeTranslator = Callable[[DecodeConfig, int], Callable[[str, int, str], Translation]]


def run_prompt(members: Sequence[Run], decode: DecodeConfig, seed: int, nbest: int):
  """Runs a prompt in this terminal; the settings are those at first, as of `make_translator`."""
  import readline  # noqa: F401  Lines can then be edited, and recalled with the arrow keys.
  run = members[0]

  def translator(decode, nbest):
    translate = make_translator(members, decode, seed, nbest)

    def answer(line, number, prefix):
      answers = translate_with(members, translate, [line], number, Prefixes([prefix]))
      warn_of_cut([answers[0].cut], run.config.data.max_length)
      return answers[0]

    return answer

  sys.stdin.reconfigure(encoding='utf-8', errors='replace')
  sys.stdout.reconfigure(encoding='utf-8', newline='\n')
  print(f'{run.workdir}, step {run.steps[-1]}: type a line to translate it, or :help')
  converse(functools.partial(input, '> '), print, translator, decode, nbest)


def converse(read: Callable[[], str], say: Callable[[str], None], make_translator: MakeTranslator,
             decode: DecodeConfig, nbest: int):
  """Translates typed lines and obeys commands, until the end of the input.

  Args:
    read: returns a line; raises EOFError at the end.
    say: prints text.
    make_translator: builds a translator; raises `UserError` if the settings do not fit.
    decode: how to search at first; lines are translated one at a time, in batches of 1.
    nbest: the number of translations for each line at first.
  """
  settings, number, prefix = (dataclasses.replace(decode, batch_size=1), nbest), 0, ''
  translate = make_translator(*settings)
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
        changed = _changed(*settings, name, value)
        translate, settings = make_translator(*changed), changed
      elif not is_blank(line):
        answer = translate(line, number, prefix)
        number += 1
        say(answer.text if settings[1] == 1 else '\n'.join(
            f'{score:9.4f}  {text}' for text, score in distinct(answer.nbest)))
    except UserError as error:
      say(f'error: {error}')


def _changed(decode: DecodeConfig, nbest: int, name: str, value: str) -> tuple[DecodeConfig, int]:
  """Returns the settings after a command.

  Raises:
    UserError: there is no such command, or its value is not allowed.
  """
  kind = {':beam': int, ':alpha': float, ':nbest': int}.get(name)
  if kind is None:
    raise UserError(f'there is no command {name}; :help lists the commands')
  try:
    number = kind(value)
  except ValueError as error:
    raise UserError(f'{name} needs a number; got {value!r}') from error
  if name == ':nbest':
    return decode, number
  if name == ':alpha':
    return dataclasses.replace(decode, alpha=number), nbest
  return dataclasses.replace(decode, beam_size=number), min(nbest, number)
