"""A request to translate or to score with a run: what a command line says, checked once."""

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from transformer.data.config import DataConfig
from transformer.data.text.text_files import STANDARD_INPUT
from transformer.decoding.config import SampleConfig
from transformer.errors import UserError
from transformer.evaluation import texts
from transformer.evaluation.results import Decoding, Member
from transformer.runs import run_directory
from transformer.system import outputs

_SEARCH = ('beam_size', 'alpha', 'dtype', 'sample', 'temperature', 'top_k', 'top_p',
           'bleu_tokenize')


@dataclasses.dataclass(frozen=True)
class Request:
  """What to translate or score, with what, and where it goes.

  Each field is the flag of that name in `commands.request_flags`, whose help explains it. None is a
  flag that was not given. A command with fewer flags leaves the others as they are.

  Raises:
    UserError: fields exclude or need each other, or a file may not be written.
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
  prefix_column: bool = False
  ensemble: Sequence[str] = ()
  data_dir: str | None = None

  def __post_init__(self):
    if not self.workdir:
      raise UserError('--workdir=DIR is needed, the directory of a run')
    for field in dataclasses.fields(self):
      if getattr(self, field.name) in ('', []):
        raise UserError(f'--{field.name}= names nothing; leave it out, or give it a value')
    for name, least in (('average', 1), ('nbest', 1), ('examples', 0)):
      if getattr(self, name) < least:
        raise UserError(f'--{name} must be at least {least}; got {getattr(self, name)}')
    self._check_texts()
    self.check_output()
    self._check_scores()
    self._check_lists()

  @property
  def unscored(self) -> bool:
    """Whether a file is translated that has no references."""
    return bool(self.source and not self.reference)

  @property
  def every_checkpoint(self) -> bool:
    """Whether all checkpoints are scored, one after the other."""
    return self.checkpoint == 'all'

  @property
  def only_translates_standard_input(self) -> bool:
    """Whether standard input is translated to standard output, and not scored."""
    return (self.source == STANDARD_INPUT and not self.reference
            and (self.output or '-') == '-' and not self.prefix)

  @property
  def people(self) -> TextIO:
    """The stream that people read: standard output, unless the translations go there."""
    return sys.stderr if self.output == '-' else sys.stdout

  def _check_texts(self):
    _refuse(
        (self.source and self.split, '--split and --source exclude each other'),
        (len(self.split) > 1 and (self.output or self.prefix),
         f'--split={",".join(self.split)} names several texts, and --output and --prefix are for '
         f'one; name one split'),
        *((STANDARD_INPUT in paths, f'--{name} must name a file; standard input is for --source')
          for name, paths in (('reference', self.reference), ('prefix', [self.prefix]))),
        (self.reference and not self.source,
         '--reference needs --source; a split brings its own'),
        (self.prefix_column and (self.prefix or not self.source),
         '--prefix_column needs --source, and excludes --prefix'),
        (self.data_dir and self.source,
         f'--data_dir={self.data_dir} is the folder of a split, and --source a file of its own; '
         f'leave out one of them'))

  def check_output(self, more_read: Iterable[str | None] = ()):
    """Refuses an output that cannot be written, or that would replace what is read.

    Args:
      more_read: files that are read besides those of the request.

    Raises:
      UserError: the output is such a file.
    """
    check_output(self.output, self.workdir,
                 [self.source, self.prefix, *self.reference, *more_read])

  def _check_scores(self):
    _refuse(
        *((getattr(self, name) and self.unscored,
           f'--{name} compares translations with references; give --reference=FILE')
          for name in ('metric', 'examples', 'ter', 'protocols', 'bleu_tokenize')),
        (self.results and (self.unscored or self.score),
         f'--results={self.results} is for scores, and nothing is scored here; leave it out; '
         f'--output=FILE takes translations and likelihoods'),
        (self.every_checkpoint and (self.output or self.score or self.ensemble or self.average > 1
                                    or self.unscored),
         '--checkpoint=all gives a table of scores; leave out --output, --score, --ensemble, '
         '--average, and --source without --reference'))

  def _check_lists(self):
    searching = [name for name in (*_SEARCH, 'seed') if getattr(self, name) is not None]
    searching += [name for name in ('examples', 'metric', 'ter', 'protocols')
                  if getattr(self, name)]
    _refuse(
        (self.score and (self.prefix or self.prefix_column),
         '--score translates nothing; leave out --prefix and --prefix_column'),
        (self.nbest > 1 and (self.score or not (self.output or self.unscored)),
         f'--nbest={self.nbest} gives lists of translations; add --output=FILE or --output=-, and '
         f'leave out --score'),
        (self.score and searching,
         f'--score searches for nothing and computes no BLEU; leave out '
         f'--{searching[0] if searching else ""}'),
        (self.tokens and not self.score,
         '--tokens gives the log-probabilities of given translations; add --score'),
        (self.score and len(self.reference) != 1,
         '--score needs --source=FILE and one --reference=FILE'))

  def decoding(self, members: Sequence) -> Decoding:
    """Returns how to decode: as the request says, and else by the first run's config.

    Args:
      members: the runs, of which each is a `Run`.

    Raises:
      UserError: the request and the config contradict each other.
    """
    config = members[0].config
    changes = {name: value for name in _SEARCH if (value := getattr(self, name)) is not None}
    if self.sample:
      # The run's beam size is for its search; the best of several samples is not a plain sample.
      changes.setdefault('beam_size', 1)
    decode = SampleConfig(**dataclasses.asdict(config.decode) | changes)
    if self.nbest > decode.beam_size:
      raise UserError(f'--nbest={self.nbest} needs as many beams, and there are '
                      f'{decode.beam_size}; give --beam_size={self.nbest}')
    for name in ('temperature', 'top_k', 'top_p', 'seed'):
      if getattr(self, name) is not None and not decode.sample:
        raise UserError(f'--{name} needs --sample; without it nothing is drawn')
    seed = config.seed if self.seed is None else self.seed
    dataclasses.replace(config, seed=seed)  # The config checks it.
    others = [Member(str(run.workdir.resolve()), run.steps) for run in members[1:]]
    changed = decode.bleu_tokenize != config.decode.bleu_tokenize
    return Decoding(decode, seed, others, tokenize=decode.bleu_tokenize if changed else '')

  def read_texts(self, data: DataConfig) -> list[texts.Text]:
    """Reads the file, or the splits of the run's data, that the request names.

    Raises:
      UserError: one of them does not exist or cannot be read, or the output would replace it.
    """
    if self.source:
      return [texts.read_files(self.source, self.reference)]
    if self.data_dir:
      data = dataclasses.replace(data, dir=self.data_dir)
    return [texts.read_split(data, split, '--data_dir')
            for split in chosen_splits(data, self.split, self.output)]

  def read_prefixes(self, text: texts.Text) -> tuple[texts.Text, Sequence[str]]:
    """Returns a text without its column of prefixes, and the prefixes; none if none are given.

    Raises:
      UserError: the file of prefixes cannot be read, or has another number of lines than the text.
    """
    if self.prefix_column:
      from transformer.decoding.prefixes import split_prefixes  # It imports JAX.
      sources, prefixes = split_prefixes(text.sources)
      return text._replace(sources=sources), prefixes
    return text, texts.read_for_each('prefix', self.prefix, text.sources) if self.prefix else []


def check_output(output: str | None, workdir: str, read: Iterable[str | None]):
  """Refuses an output that cannot be written, or that would replace a run's files or what is read.

  Args:
    output: the file; None and - are no file.
    workdir: the directory of the run.
    read: the files that are read; None is none.
  """
  if output and output != '-':
    path = Path(output).expanduser()
    outputs.check_file('output', path)
    outputs.check_not_read('output', path,
                           [*filter(None, read), *run_directory.record_files(workdir)])


def chosen_splits(data: DataConfig, names: Sequence[str], output: str | None) -> list[str]:
  """Returns the splits of a run's data by their own names, each once; without names its test split.

  Raises:
    UserError: the data has no test split, or the output would replace a file of a split.
  """
  splits = dict.fromkeys(texts.split_name(data, name)
                         for name in [name for name in names if name] or ['test'])
  if not all(splits):
    raise UserError('the config of this run names no data.test; give --split=NAME, or '
                    '--source=FILE with --reference=FILE')
  if output:
    outputs.check_not_read('output', Path(output).expanduser(), texts.split_files(data, *splits))
  return list(splits)


def _refuse(*mistakes: tuple[object, str]):
  """Raises the message of the first mistake that was made."""
  for made, message in mistakes:
    if made:
      raise UserError(message)
