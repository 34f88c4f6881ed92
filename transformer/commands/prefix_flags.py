"""The flags for what translations begin with."""

from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

from transformer.commands import shared_flags
from transformer.errors import UserError
from transformer.evaluation import texts

# As in `shared_flags`: --help lists these flags under the module that asks for them.
flags.disclaim_key_flags()


class PrefixFlags(NamedTuple):
  """The flags: see their help texts."""

  file: flags.FlagHolder
  column: flags.FlagHolder

  @property
  def given(self) -> bool:
    """Whether a translation may have a prefix."""
    return bool(self.file.value or self.column.value)

  def check(self, source: str | None):
    """Refuses flags that exclude or need each other; `source` is the file to translate.

    Raises:
      UserError: names the flags that do.
    """
    shared_flags.check_named(self.file)
    if self.column.value and (self.file.value or not source):
      raise UserError('--prefix_column needs --source, and excludes --prefix')

  def read(self, text: texts.Text) -> tuple[texts.Text, Sequence[str]]:
    """Returns a text without its column of prefixes, and the prefixes; none without the flags.

    Raises:
      UserError: a file cannot be read, or has another number of lines than the text.
    """
    from transformer.decoding.prefixes import split_prefixes
    if self.column.value:
      sources, prefixes = split_prefixes(text.sources)
      return text._replace(sources=sources), prefixes
    if self.file.value:
      return text, texts.read_for_each('prefix', self.file.value, text.sources)
    return text, []


def define_prefixes() -> PrefixFlags:
  """Defines `--prefix` and `--prefix_column`."""
  return PrefixFlags(
      flags.DEFINE_string('prefix', None, 'A file with a line for each of the source: what its '
                          'translation begins with. An empty line leaves it free.'),
      flags.DEFINE_bool('prefix_column', False, 'Each line of --source has, after a tab, the '
                        'beginning of its translation.'))
