"""German text as the paper's BLEU reads it: tokenised by Moses, compounds split at hyphens."""

import re
from collections.abc import Iterable

_HYPHEN = re.compile(rb'(\S)-(\S)')  # Of bytes, as Perl read them.


def tokenize_german(lines: Iterable[str]) -> list[str]:
  """Tokenises German as Moses' `tokenizer.perl -l de` does, special characters escaped.

  Source: `sacremoses`, a port of the Moses tokenizer to Python. As Moses did when the paper
  was written, and until November 2018, it leaves an abbreviation at the end of a line whole.

  Args:
    lines: detokenised text, a sentence a line.

  Returns:
    The lines, with a space between tokens.
  """
  import sacremoses  # Half a second that only this protocol needs.
  moses = sacremoses.MosesTokenizer(lang='de')
  return [moses.tokenize(line, return_str=True) for line in lines]


def split_compounds(line: str) -> str:
  """Splits compounds at their hyphens: `rot-weiß` becomes `rot ##AT##-##AT## weiß`.

  The rule is a global replacement of a hyphen between two bytes that are no space. A byte
  that one match has taken begins no other, so a hyphen one byte after the last one that was
  split stays: `a-b-c` becomes `a ##AT##-##AT## b-c`, but `a-ö-c`, whose `ö` is two bytes in
  UTF-8, is split twice.

  Source: `tensor2tensor/utils/get_ende_bleu.sh` in the repository of the paper's authors,
  after the preprocessing of https://nlp.stanford.edu/projects/nmt/.

  Args:
    line: tokenised text.

  Returns:
    The line, with every such hyphen a token of its own.
  """
  return _HYPHEN.sub(rb'\1 ##AT##-##AT## \2', line.encode()).decode()
