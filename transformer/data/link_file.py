"""Links between the words of a training corpus, as links between its tokens."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from transformer.data.corpus import FOLDER, Corpus
from transformer.data.pharaoh import Link, parse_links
from transformer.data.text_files import TextFile
from transformer.data.word_parts import word_parts
from transformer.errors import UserError


class LinkFile:
  """The links of a corpus: a line of Pharaoh's format for each pair, blank where there are none.

  Attributes:
    name: the path of the file.
    fingerprint: SHA-256 of the lines, in hexadecimal.
    notes: as in `Corpus`.
  """

  def __init__(self, name: str, corpus: Corpus):
    """Opens the file; its links are read and checked when the corpus is encoded.

    Raises:
      UserError: the file is missing, not UTF-8, or has another number of lines than the corpus.
    """
    self._file = TextFile(name, Path(corpus.folder) / FOLDER)
    self.name, self.fingerprint, self.notes = name, self._file.fingerprint, self._file.notes
    if len(self._file) != len(corpus):
      raise UserError(f'data.alignments must have a line for each pair of sentences; {corpus.name} '
                      f'has {len(corpus)} pairs, {name} has {len(self._file)} lines')

  def places(self, first: int, pairs: Sequence[tuple[str, str]],
             tokens: Sequence[Sequence[Sequence[int]]], vocabulary) -> Iterator[np.ndarray]:
    """Yields the places of the linked tokens of each pair, as in `EncodedPairs.links`.

    Args:
      first: the number of pairs in the corpus before these.
      pairs: source and target sentences.
      tokens: the ids of all sources, and of all targets.
      vocabulary: the run's vocabulary, a `RunVocabulary`.

    Raises:
      UserError: a link is malformed, or one of its words is not in its sentence.
    """
    languages = vocabulary.source, vocabulary.target
    for number, (line, pair, *ids) in enumerate(zip(
        self._file.read(first, first + len(pairs)), pairs, *tokens, strict=True), first + 1):
      links = parse_links(line, f'{self.name}:{number}', *pair).possible
      in_source_SI, in_target_TJ = (
          word_parts([language.piece_bytes(token) for token in sentence])
          for language, sentence in zip(languages, ids, strict=True))
      yield link_tokens(links, in_source_SI, in_target_TJ).reshape(-1)


def link_tokens(links: Collection[Link], in_source_SI: np.ndarray,
                in_target_TJ: np.ndarray) -> np.ndarray:
  """Links all tokens of linked words to each other.

  Args:
    links: source and target words, from 0.
    in_source_SI: boolean, whether source token s is a part of source word i.
    in_target_TJ: boolean, whether target token t is a part of target word j.

  Returns:
    int [links, 2]: rows of a target token and a source token, counted from 0, ascending.
  """
  links_JI = np.zeros((in_target_TJ.shape[1], in_source_SI.shape[1]), np.float32)
  for i, j in links:
    links_JI[j, i] = 1
  # NumPy multiplies floats faster than booleans.
  return np.argwhere(in_target_TJ.astype(np.float32) @ links_JI @ in_source_SI.T)
