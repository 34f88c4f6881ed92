"""The flags of `eval.py` for word alignments: their checks, and the work that they ask for."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from absl import flags

from transformer.commands import shared_flags
from transformer.data.pharaoh import GoldLinks, Link, alignment_lines, read_gold
from transformer.errors import UserError

# As in `shared_flags`: --help lists these flags under the module that asks for them.
flags.disclaim_key_flags()


class AlignmentFlags(NamedTuple):
  """The flags: see their help texts."""

  file: flags.FlagHolder
  layer: flags.FlagHolder
  shift: flags.FlagHolder
  gold: flags.FlagHolder

  @property
  def asked(self) -> bool:
    """Whether any alignment is needed."""
    return bool(self.file.value or self.gold.value)


def define_alignments() -> AlignmentFlags:
  """Defines the flags."""
  return AlignmentFlags(
      flags.DEFINE_string('alignments', None, 'Where links between the words of sources and '
                          'translations go, as I-J: a source and a target word, from 0.'),
      flags.DEFINE_integer('alignment_layer', None, 'The layer of the decoder whose attention '
                           'links words, from 1 at the bottom; default: the head that '
                           'train.alignment_layer trained, or the mean of all layers.'),
      flags.DEFINE_bool('alignment_shift', False, 'Link a word by the attention at the step after '
                        'it was written (SHIFT-ATT), and not at the step that writes it.'),
      flags.DEFINE_string('alignment_gold', None, 'A file of links that people drew, which those '
                          'of --score are compared with: the alignment error rate.'))


def check(asked: AlignmentFlags, output: str | None, score: bool, several: bool):
  """Refuses flags that exclude or need each other.

  Args:
    asked: the flags of alignments.
    output: where translations or scores go.
    score: whether translations are given.
    several: whether there are several translations of a sentence.

  Raises:
    UserError: names the flags that do.
  """
  shared_flags.check_named(asked.file, asked.gold)
  if asked.file.value == '-':
    raise UserError('--alignments must name a file; standard output is for --output')
  paths = [Path(each).expanduser().resolve() for each in (output, asked.file.value) if each]
  if len(paths) == 2 and paths[0] == paths[1]:
    raise UserError(f'--output and --alignments must name two files; both name {output}')
  if asked.gold.value and not score:
    raise UserError('--alignment_gold is for translations that are given; add --score, with '
                    '--source=FILE and --reference=FILE')
  if (asked.layer.value is not None or asked.shift.value) and not asked.asked:
    raise UserError('--alignment_layer and --alignment_shift need --alignments=FILE or '
                    '--alignment_gold=FILE')
  if asked.asked and several:
    raise UserError('--alignments is for one translation of each sentence; leave out --nbest and '
                    '--checkpoint=all')


def read(asked: AlignmentFlags, sources: Sequence[str], targets: Sequence[str]) -> list[GoldLinks]:
  """Reads the gold alignments of pairs; nothing without --alignment_gold."""
  return read_gold(asked.gold.value, sources, targets) if asked.gold.value else []


def align(asked: AlignmentFlags, members: Sequence, sources: Sequence[str],
          targets: Sequence[str]) -> list[list[Link]]:
  """Aligns pairs with a run or an ensemble, and writes the links if there is a file for them.

  Returns:
    The links of each pair.
  """
  from transformer.decoding.ensemble import align_with
  from transformer.decoding.lines import write_lines
  links = align_with(members, sources, targets, asked.layer.value, asked.shift.value)
  if asked.file.value:
    write_lines(alignment_lines(links), asked.file.value)
  return links


def describe(asked: AlignmentFlags) -> dict[str, int]:
  """Returns the names and values that distinguish alignments by the same models."""
  return {name: int(flag.value) for name, flag in (('layer', asked.layer), ('shift', asked.shift))
          if flag.value}
