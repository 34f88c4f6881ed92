"""Kinds of hostile text, and a run that is trained and scored on one of them.

For each kind, hostile lines are added to 40 ordinary ones, for training, validation and test. A
tiny model takes two updates. Then eval.py translates the test, once from a file with references and
once from standard input. Either every line has the same translation both ways, or the command ends
in one line that names the file and the line.
"""

import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SETTINGS = {
    'data.vocabulary_size': 420, 'data.max_length': 32, 'data.source_language': 'en',
    'data.target_language': 'de', 'model.num_layers': 1, 'model.model_dim': 8, 'model.ff_dim': 11,
    'model.num_heads': 2, 'train.tokens_per_batch': 128, 'train.steps': 2,
    'train.checkpoint_every': 2, 'train.eval_every': 2, 'decode.max_extra_length': 3,
    'decode.beam_size': 2, 'decode.batch_size': 16}
WORDS = ('man', 'dog', 'red', 'shirt', 'mann', 'hund', 'rot', 'hemd', 'läuft', 'runs', 'über',
         'grass', 'gras', 'women', 'frauen', 'bench', 'bank', 'zwei', 'two', 'climbs')


def ordinary(lines: int, seed: int) -> list[str]:
  """Returns ordinary sentences."""
  rng = random.Random(seed)
  return [' '.join(rng.choices(WORDS, k=rng.randint(2, 6))) for _ in range(lines)]


# Valid but hostile sentences, by their kind.
SENTENCES = {
    'NUL bytes': ['a\x00man', '\x00', '\x00\x00 dog \x00'],
    'other control characters': [''.join(map(chr, range(1, 10))), '\x0b\x1b[31m red',
                                 '\x7f\x85'],
    'byte order marks inside': ['\ufeffdog', 'dog\ufeff', '\ufeff'],
    'lone carriage returns': ['a\rman', '\r', 'dog\r'],
    'line and paragraph separators': ['a\u2028man', '\u2028', '\u2029dog\u2029', '\x1c\x1d\x1e'],
    'marks of direction': ['\u200fשלום\u200e', '\u202edog\u202c', '\u2067\u2069', '\u200f'],
    'emoji': ['👩‍👩‍👧 🇩🇪', '😀' * 20, '👍🏽 dog', '🏴󠁧󠁢󠁥󠁮󠁧󠁿'],
    'combining marks': ['e\u0301 e' + '\u0301' * 200, '\u0301', 'Z͑ͫa̓l̕g͜o'],
    'noncharacters and private ones': ['\ufffe\uffff', '\U0010ffff', '\ue000 \U000f2581 \ufffd'],
    'what looks like markup': ['<s> </s> <pad> <unk>', '<0x41>', ' ⁇ ', '▁ ▁▁ \u2585'],
    'blank lines': ['', ' ', '\t', '\u00a0', '\u3000  '],
    'a line of 100,000 tokens': ['dog ' * 100_000],
    'a word of 100,000 letters': ['dogma' * 20_000],
    '10,000 empty lines': [''] * 10_000,
}
# Lines that are not UTF-8, by their kind.
BROKEN = {
    'a lone surrogate': b'a \xed\xa0\x80 man', 'half a character': 'ü'.encode()[:1],
    'an overlong NUL': b'\xc0\x80', 'Latin-1': 'läuft'.encode('latin-1'), 'beyond Unicode':
    b'\xf4\x90\x80\x80', 'UTF-16': 'dog'.encode('utf-16')}


class Kind(NamedTuple):
  """A kind of hostile text.

  Attributes:
    name: what is printed for it.
    file: the content of a file, the same for all splits and languages.
    names_line: the line that an error must name, from 1; 0 if there must be no error.
  """

  name: str
  file: bytes
  names_line: int = 0


def kinds() -> list[Kind]:
  """Returns all kinds of hostile text."""
  lines = [line.encode() for line in ordinary(40, 0)]

  def file(hostile: Sequence[bytes]) -> bytes:
    return b'\n'.join([*lines[:20], *hostile, *lines[20:], b''])

  every = [line.encode() for name, hostile in SENTENCES.items() for line in hostile
           if name != '10,000 empty lines']
  found = [Kind('all that UTF-8 allows, together', b'\xef\xbb\xbf' + file(every)[:-1])]
  found += [Kind(name, file([line.encode() for line in hostile]))
            for name, hostile in SENTENCES.items()]
  found += [
      Kind('a byte order mark at the start', b'\xef\xbb\xbf' + file([])),
      Kind('CRLF', file([]).replace(b'\n', b'\r\n')),
      Kind('CRLF here and there', file([b'dog\r', b'red dog\r'])),
      Kind('no line feed at the end', file([])[:-1]),
      Kind('nothing but empty lines at the end', file([]) + b'\n' * 100)]
  return found + [Kind(name, file([line]), 21) for name, line in BROKEN.items()]


def command(script: str, *flags: str, text: bytes | None = None) -> subprocess.CompletedProcess:
  """Runs a command of the repository on one CPU device."""
  environment = {**os.environ, 'JAX_PLATFORMS': 'cpu'}
  return subprocess.run([sys.executable, str(ROOT / script), *flags], cwd=ROOT, env=environment,
                        input=text, capture_output=True, timeout=600)


def number_of_lines(data: bytes) -> int:
  """Returns the number of lines; each ends with a line feed, but the last may lack it."""
  data = data.removeprefix(b'\xef\xbb\xbf')
  return data.count(b'\n') + (data[-1:] not in (b'', b'\n'))


def attempt(kind: Kind, folder: Path):
  """Trains and evaluates on one kind, in an empty folder, and checks the outcome."""
  def write(split, data):
    for language in ('en', 'de'):
      (folder / f'{split}.{language}').write_bytes(data)

  for split in ('train', 'valid', 'test'):
    write(split, kind.file)
  run = folder / 'run'
  flags = ('--config=configs/text.py', f'--workdir={run}', f'--config.data.dir={folder}',
           *(f'--config.{name}={value}' for name, value in SETTINGS.items()))
  done = command('train.py', *flags)
  if kind.names_line:
    check_error(done, f'train.en must be UTF-8; line {kind.names_line} is not')
    # eval.py needs a run, which is trained on ordinary text.
    for split in ('train', 'valid'):
      write(split, '\n'.join(ordinary(40, 0)).encode())
    assert command('train.py', *flags).returncode == 0
    for file, flag in (('test.en', '--split=test'), ('test.en', f'--source={folder}/test.en'),
                       ('standard input', '--source=-')):
      check_error(command('eval.py', f'--workdir={run}', flag, text=kind.file),
                  f'{file} must be UTF-8; line {kind.names_line} is not')
    return
  assert done.returncode == 0, last_line(done)
  done = command('eval.py', f'--workdir={run}', f'--source={folder}/test.en',
                 f'--reference={folder}/test.de', f'--output={folder}/out')
  assert done.returncode == 0, last_line(done)
  translations = (folder / 'out').read_bytes()
  piped = command('eval.py', f'--workdir={run}', '--source=-', text=kind.file)
  assert piped.returncode == 0, last_line(piped)
  wanted = number_of_lines(kind.file)
  for each in (translations, piped.stdout):
    each.decode('utf-8')
    got = each.count(b'\n')
    assert got == wanted, f'{wanted} lines have {got} translations'
  assert translations == piped.stdout, 'the translations from standard input differ'
  scored = re.search(r': (\d+) sentences in .*\n  BLEU +\d+\.\d\d ', done.stdout.decode())
  assert scored and int(scored[1]) == wanted, done.stdout


def check_error(done: subprocess.CompletedProcess, fact: str):
  """Checks that a command ended in one line that contains `fact`."""
  errors = [line for line in done.stderr.decode().splitlines()
            if not re.match(r'[IW]\d{4} ', line)]
  assert done.returncode == 1 and len(errors) == 1, f'{done.returncode}: {last_line(done)}'
  assert errors[0].startswith('error: ') and fact in errors[0], errors[0]


def last_line(done: subprocess.CompletedProcess) -> str:
  """Returns the last line of a command's standard error."""
  return (done.stderr.decode(errors='replace').strip().splitlines() or ['nothing'])[-1]
