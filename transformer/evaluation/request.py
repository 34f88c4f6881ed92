"""A request to translate or to score with a run: what a command line says, checked once."""

import dataclasses
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from transformer import files
from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.text.text_files import STANDARD_INPUT
from transformer.decoding.config import SETTINGS, Decoding
from transformer.errors import UserError, refuse
from transformer.evaluation import texts
from transformer.runs import run_directory
from transformer.settings import check_range
from transformer.system import outputs

# What needs references.
_SCORES = ('metric', 'examples', 'ter', 'protocols', 'bleu_tokenize', 'results')
# What a flag excludes.
_EXCLUDED = {
  'source': ('split', 'data_dir'),
  'score': (*_SCORES, *SETTINGS, 'split', 'prefix'),
  'checkpoint=all': ('output', 'score', 'ensemble', 'average'),
}


@dataclasses.dataclass(frozen=True)
class Request:
  """What to translate or score, with what, and where it goes.

  Each field is the flag of that name in `commands.shared_flags`, whose help explains it. None is a
  flag that was not given. A command with fewer flags leaves the others as they are.
  """

  workdir: str = ''
  split: Sequence[str] = ()
  source: str | None = None
  reference: Sequence[str] = ()
  checkpoint: str = 'best'
  average: int = 1
  output: str | None = None
  results: str | None = None
  batch_size: int | None = None
  beam_size: int | None = None
  alpha: float | None = None
  dtype: str | None = None
  bleu_tokenize: str | None = None
  search: Any = None
  sample: bool | None = None
  temperature: float | None = None
  top_k: int | None = None
  top_p: float | None = None
  seed: int | None = None
  examples: int = 0
  nbest: int = 1
  metric: Sequence[str] = ()
  ter: bool | None = None
  protocols: bool = False
  score: bool = False
  tokens: bool = False
  prefix: str | None = None
  ensemble: Sequence[str] = ()
  data_dir: str | None = None

  def __post_init__(self):
    given = {
      field.name for field in dataclasses.fields(self) if getattr(self, field.name) != field.default
    }
    if self.checkpoint == 'all':
      given.add('checkpoint=all')
    check_range('--average', self.average, least=1)
    check_range('--examples', self.examples, least=0)
    scores = [name for name in (*_SCORES, 'checkpoint=all') if name in given]
    refuse(
      (not self.workdir, '--workdir=DIR is needed, the directory of a run'),
      *(
        (
          name in given and given.intersection(excluded),
          f'--{name} excludes --{" and --".join(other for other in excluded if other in given)}',
        )
        for name, excluded in _EXCLUDED.items()
      ),
      (
        len(self.split) > 1 and (self.output or self.prefix),
        f'--split={",".join(self.split)} names several texts, and --output and --prefix are for '
        f'one; name one split',
      ),
      (
        STANDARD_INPUT in (*self.reference, self.prefix),
        '--reference and --prefix must name a file; standard input is for --source',
      ),
      (
        self.reference and not self.source,
        '--reference needs --source=FILE; a split brings its own',
      ),
      (
        scores and self.unscored,
        f'--{" and --".join(scores)} compares translations with references; give --reference=FILE',
      ),
      (
        self.score and len(self.reference) != 1,
        '--score needs --source=FILE and one --reference=FILE',
      ),
      (
        self.tokens and not self.score,
        '--tokens gives the log-probabilities of given translations; add --score',
      ),
      (
        self.nbest > 1 and (self.score or not (self.output or self.unscored)),
        f'--nbest={self.nbest} gives lists of translations; add --output=FILE or --output=-, and '
        f'leave out --score',
      ),
    )
    check_output(self.output, [self.source, self.prefix, *self.reference], self.workdir)

  @property
  def unscored(self) -> bool:
    """Whether a file is translated that has no references."""
    return bool(self.source and not self.reference)

  @property
  def people(self) -> TextIO:
    """The stream that people read: standard output, unless the translations go there."""
    return sys.stderr if self.output == '-' else sys.stdout

  def decoding(self, config: Config) -> Decoding:
    """Returns how to decode: as the request says, and else by the config of the run."""
    decoding = Decoding.of(
      config.decode,
      config.seed,
      {
        name: value
        for name in (*SETTINGS, 'bleu_tokenize', 'nbest')
        if (value := getattr(self, name)) is not None
      },
    )
    if (tokenize := decoding.config.bleu_tokenize) == config.decode.bleu_tokenize:
      return decoding
    return decoding._replace(more={'bleu': tokenize})

  def read_texts(self, data: DataConfig) -> list[texts.Text]:
    """Reads the file, or the splits of the run's data, that the request names."""
    if self.source:
      read = [texts.read_files(self.source, self.reference)]
    else:
      data = dataclasses.replace(data, dir=self.data_dir or data.dir)
      read = [
        texts.read_split(data, split) for split in chosen_splits(data, self.split, self.output)
      ]
    if self.prefix:
      return [
        text._replace(prefixes=texts.read_beside('prefix', self.prefix, text.sources))
        for text in read
      ]
    return read


def check_output(
  output: str | None,
  read: Iterable[str | os.PathLike | None],
  workdir: str | None = None,
  flag: str = 'output',
):
  """Refuses an output that cannot be written, or would replace a run's files or what is read."""
  if output and output != '-':
    path = files.as_path(output)
    outputs.check_file(flag, path)
    record = [Path(workdir, name) for name in run_directory.RECORD] if workdir else []
    outputs.check_not_read(flag, path, [*filter(None, read), *record])


def chosen_splits(data: DataConfig, names: Sequence[str], output: str | None) -> list[str]:
  """Returns the splits of data by their own names; the output must not be a file of theirs.

  `test`, the default, `valid` and `train` stand for the names that the data has for them.
  """
  known = {'test': data.test, **data.valid_sets, 'train': data.train[0]}
  splits = dict.fromkeys(known.get(name, name) for name in list(filter(None, names)) or ['test'])
  if not all(splits):
    raise UserError(
      'the config of this run names no data.test; give --split=NAME, or '
      '--source=FILE with --reference=FILE'
    )
  if output:
    outputs.check_not_read('output', files.as_path(output), texts.split_files(data, *splits))
  return list(splits)
