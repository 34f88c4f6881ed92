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
from transformer.decoding.constraint import Prefixes
from transformer.decoding.ensemble import make_translator, translate_with
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


def run_prompt(members: Sequence[Run], decode: DecodeConfig, seed: int, nbest: int):
  """Runs a prompt in this terminal; the settings are those at first, as of `make_translator`."""
  import readline  # noqa: F401  Lines can then be edited, and recalled with the arrow keys.
  run = members[0]

  def translator(decode, nbest):
    translate = make_translator(members, decode, seed, nbest)

    def answer(line, number, prefix):
      translation, = translate_with(members, translate, [line], number, Prefixes([prefix]))
      warn_of_cut([translation.cut], run.config.data.max_length)
      return translation

    return answer

  sys.stdin.reconfigure(encoding='utf-8', errors='replace')
  sys.stdout.reconfigure(encoding='utf-8', newline='\n')
  print(f'{run.workdir}, step {run.steps[-1]}: type a line to translate it, or :help')
  converse(functools.partial(input, '> '), print, translator, decode, nbest)


def converse(read: Callable[[], str], say: Callable[[str], None],
             make_translator: Callable[[DecodeConfig, int], Callable[[str, int, str], Translation]],
             decode: DecodeConfig, nbest: int):
  """Translates what `read` returns and obeys commands, until it raises EOFError.

  Settings of a search and a number of translations make a translator, a function (line, its number,
  prefix) -> translation. A mistake is said in one line, and changes nothing.
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
  """Returns the settings after a command."""
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
