"""The flags of `eval.py` for what translations begin with, contain and do not hold."""

from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

from transformer.commands import shared_flags
from transformer.errors import UserError
from transformer.evaluation import texts

# As in `shared_flags`: --help lists these flags under the module that asks for them.
flags.disclaim_key_flags()


class RequirementFlags(NamedTuple):
  """The flags: see their help texts."""

  prefix: flags.FlagHolder
  prefix_column: flags.FlagHolder
  require: flags.FlagHolder
  avoid: flags.FlagHolder

  @property
  def asked(self) -> bool:
    """Whether anything is required."""
    return any(flag.value for flag in self)

  @property
  def files(self) -> list[flags.FlagHolder]:
    """The flags that name files to read."""
    return [self.prefix, self.require, self.avoid]

  @property
  def by_line(self) -> bool:
    """Whether a file has a line for each sentence, so that all sentences must be read first."""
    return bool(self.prefix.value or self.require.value)


def define_requirements() -> RequirementFlags:
  """Defines the flags."""
  return RequirementFlags(
      flags.DEFINE_string('prefix', None, 'A file with a line for each of the source: what its '
                          'translation begins with. An empty line leaves it free.'),
      flags.DEFINE_bool('prefix_column', False, 'Each line of --source has, after a tab, the '
                        'beginning of its translation.'),
      flags.DEFINE_string('require', None, 'A file with a line for each of the source: words and '
                          'phrases, with tabs between them, that its translation must contain.'),
      flags.DEFINE_string('avoid', None, 'A file of words and phrases, one a line, that must not '
                          'appear in translations.'))


def check(asked: RequirementFlags, source: str | None, score: bool):
  """Refuses flags that exclude or need each other.

  Args:
    asked: the flags of requirements.
    source: the file that is translated, if one is named.
    score: whether translations are given.

  Raises:
    UserError: names the flags that do.
  """
  shared_flags.check_named(asked.prefix, asked.require, asked.avoid)
  if asked.prefix_column.value and (asked.prefix.value or not source):
    raise UserError('--prefix_column needs --source, and excludes --prefix')
  if score and asked.asked:
    raise UserError('--score translates nothing; leave out --prefix, --prefix_column, --require '
                    'and --avoid')


def check_search(asked: RequirementFlags, sample: bool):
  """Refuses required words where translations are drawn, by a flag or by the run's config.

  Raises:
    UserError: words are required of drawn translations.
  """
  if sample and asked.require.value:
    raise UserError('--require needs a search, which keeps places for the words; leave out '
                    '--sample, or give --nosample')


def read_by_line(asked: RequirementFlags, text: texts.Text) -> tuple[
    texts.Text, Sequence[str], Sequence[Sequence[str]]]:
  """Reads what each translation must begin with, and what it must contain.

  Args:
    asked: the flags of requirements.
    text: the text to translate.

  Returns:
    The text, without the column of --prefix_column; the prefixes; and the phrases. The last two
    are empty without their flags.

  Raises:
    UserError: a file cannot be read, or has another number of lines than the text.
  """
  from transformer.decoding.lines import split_prefixes
  prefixes = []
  if asked.prefix_column.value:
    sources, prefixes = split_prefixes(text.sources)
    text = text._replace(sources=sources)
  elif asked.prefix.value:
    prefixes = texts.read_for_each('prefix', asked.prefix.value, text.sources)
  phrases = []
  if asked.require.value:
    lines = texts.read_for_each('require', asked.require.value, text.sources)
    phrases = [[phrase.strip() for phrase in line.split('\t') if phrase.strip()] for line in lines]
  return text, prefixes, phrases
