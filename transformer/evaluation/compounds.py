"""Preprocessing of German text for the paper's BLEU: Moses' tokens, split compounds."""

import re
from collections.abc import Iterable

_HYPHEN = re.compile(rb'(\S)-(\S)')  # Matches bytes, as the Perl script does.


def tokenize_german(lines: Iterable[str]) -> list[str]:
  """Tokenises German as Moses' `tokenizer.perl -l de` does, and escapes special characters.

  Source: `sacremoses`, a port of the Moses tokenizer to Python. It does not split an
  abbreviation from its dot at the end of a line; nor did Moses until November 2018.
  """
  import sacremoses  # Imported here because it takes half a second.
  moses = sacremoses.MosesTokenizer(lang='de')
  return [moses.tokenize(line, return_str=True) for line in lines]


def split_compounds(line: str) -> str:
  """Splits compounds of tokenised text at their hyphens: `rot-weiß` to `rot ##AT##-##AT## weiß`.

  A hyphen stands between two bytes that are not spaces. Matches do not overlap: `a-b-c` becomes
  `a ##AT##-##AT## b-c`, and `a-ö-c` is split twice, since `ö` is two bytes in UTF-8.

  Source: `tensor2tensor/utils/get_ende_bleu.sh` in the repository of the paper's authors,
  after the preprocessing of https://nlp.stanford.edu/projects/nmt/.
  """
  return _HYPHEN.sub(rb'\1 ##AT##-##AT## \2', line.encode()).decode()
