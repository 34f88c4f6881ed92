"""A request to translate or score with a run: the flags of a command, validated once."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer import files
from transformer.cli import shared_flags
from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.text.text_files import STANDARD_INPUT
from transformer.decoding.config import (
  DECODE_OPTIONS,
  DecodeOptions,
  resolve_decode_options,
)
from transformer.errors import UserError
from transformer.evaluation import eval_sets
from transformer.runs import run_directory
from transformer.system import outputs

if TYPE_CHECKING:
  from transformer.trained_run import TrainedRun

# Fields that require references.
_SCORES = ('metric', 'examples', 'bleu_tokenize', 'results')


@dataclasses.dataclass(frozen=True)
class Request:
  """The text to translate or score, the run and the options to use, and the output.

  Each field is the flag of that name in `cli.shared_flags`, whose help documents it. `options`
  are the flags that `resolve_decode_options` takes. A command with fewer flags uses the defaults
  of the others.
  """

  workdir: str = ''
  split: Sequence[str] = ()
  source: str = ''
  reference: Sequence[str] = ()
  checkpoint: str = 'best'
  average: int = 1
  output: str = ''
  results: str = ''
  bleu_tokenize: str = ''
  examples: int = 0
  metric: Sequence[str] = ()
  ensemble: Sequence[str] = ()
  data_dir: str = ''
  options: dict = dataclasses.field(default_factory=dict)

  @classmethod
  def from_flags(cls, holders: Iterable, **extra: Any) -> 'Request':
    """Returns a request with the flags that were set, and with further fields by name."""
    values = shared_flags.explicit_values(*holders)
    options = {name: values.pop(name) for name in DECODE_OPTIONS if name in values}
    return cls(**values, **extra, options=options)

  def __post_init__(self):
    if not self.workdir:
      raise UserError(
        '--workdir is missing; pass the directory of a run: --workdir=DIR'
      )
    if self.source and self.split:
      raise UserError('--source and --split are mutually exclusive; remove one')
    if self.source and self.data_dir:
      raise UserError('--source and --data_dir are mutually exclusive; remove one')
    if self.reference and not self.source:
      raise UserError(
        '--reference requires --source; pass --source=FILE, or remove --reference to score a '
        'split'
      )
    if STANDARD_INPUT in self.reference:
      raise UserError('--reference must name a file; standard input is for --source')
    if len(self.split) > 1 and self.output:
      raise UserError(
        f'--split={",".join(self.split)} names several splits, but --output is for one; pass '
        'one split'
      )
    nbest = self.options.get('nbest', 1)
    if nbest > 1 and not (self.output or self.unscored):
      raise UserError(
        f'--nbest={nbest} needs a file for its lists; pass --output=FILE or --output=-'
      )
    if self.unscored:
      for name in _SCORES:
        if getattr(self, name):
          raise UserError(f'--{name} requires references; pass --reference=FILE')
    if self.checkpoint == 'all':
      if self.unscored:
        raise UserError(
          '--checkpoint=all requires references; pass --reference=FILE, or one step'
        )
      if self.output or self.ensemble or self.average > 1:
        raise UserError(
          '--checkpoint=all cannot be combined with --output, --ensemble or --average; remove '
          'them, or pass one step'
        )
    check_output(self.output, [self.source, *self.reference], self.workdir)

  @property
  def unscored(self) -> bool:
    """Whether the request translates a file without references."""
    return bool(self.source and not self.reference)

  def load(self, checkpoint: str = '') -> 'TrainedRun':
    """Loads the run and its ensemble; `checkpoint`, if given, overrides the one of the request."""
    from transformer.trained_run import load  # Imports JAX.

    return load(
      self.workdir,
      checkpoint or self.checkpoint,
      self.average,
      self.ensemble,
      self.options.get('batch_size'),
    )

  def decode_options(self, config: Config) -> DecodeOptions:
    """Returns the decoding options; those that are not set come from the run's config."""
    decoding = resolve_decode_options(config.decode, config.seed, **self.options)
    return dataclasses.replace(
      decoding, bleu_tokenize=self.bleu_tokenize or decoding.bleu_tokenize
    )

  def read_eval_sets(self, data: DataConfig) -> list[eval_sets.EvalSet]:
    """Returns the requested evaluation sets: the source file, or splits of the run's data."""
    if self.source:
      return [eval_sets.read_files(self.source, self.reference)]
    data = dataclasses.replace(data, dir=self.data_dir or data.dir)
    splits = resolve_splits(data, self.split, self.output)
    return [eval_sets.read_split(data, split) for split in splits]


def check_output(
  output: str | None, inputs: Iterable, workdir: str = '', flag: str = 'output'
):
  """Raises `UserError` if an output cannot be written, or would overwrite an input."""
  if output and output != '-':
    path = files.as_path(output)
    outputs.check_file(flag, path)
    record = (
      [Path(workdir, name) for name in run_directory.RECORD_FILES] if workdir else []
    )
    outputs.check_not_input(flag, path, [*filter(None, inputs), *record])


def resolve_splits(data: DataConfig, names: Sequence[str], output: str) -> list[str]:
  """Returns the names of the splits in the data; the default is the test split.

  `test`, `valid` and `train` stand for the names that the data has for them. Raises `UserError` if
  the output would overwrite a file of the splits.
  """
  aliases = {'test': data.test, **data.valid_sets, 'train': data.train[0]}
  splits = dict.fromkeys(
    aliases.get(name, name) for name in list(filter(None, names)) or ['test']
  )
  if not all(splits):
    raise UserError(
      "this run's config has no data.test; pass --split=NAME, or --source=FILE with "
      '--reference=FILE'
    )
  if output:
    outputs.check_not_input(
      'output', files.as_path(output), eval_sets.split_files(data, *splits)
    )
  return list(splits)
