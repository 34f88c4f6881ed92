"""BPE-dropout: cuts sentences by byte-pair merges, and leaves out some merges at random.

SentencePiece can do this too, but cannot be seeded. Here a draw is a hash of the sentence's key and
of the merge's place in the sentence.
"""

import itertools

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from transformer.data.batches.shuffling import mix
from transformer.data.batches.variations import Vary
from transformer.data.encoding import Sentences, count_from_zero
from transformer.data.vocabulary.vocabularies import RunVocabulary, is_shared
from transformer.data.vocabulary.vocabulary import Vocabulary

_Piece = ModelProto.SentencePiece
_CHUNK = 1 << 14  # tokens that are cut together, so that the arrays fit into a cache
_PLACE_BITS = 32
_NEVER = np.iinfo(np.int64).max  # the cost of a merge that is not possible
_JOINED = -1  # replaces a symbol that was merged into the one before


def make_bpe_dropout(vocabulary: RunVocabulary, rate: float) -> list[Vary]:
  """Returns variations that cut a side's sentences into other pieces; see `Merges.cut`."""
  of_source = Merges(vocabulary.source)
  of_target = of_source if is_shared(vocabulary) else Merges(vocabulary.target)
  return [
    lambda source, target, keys: (of_source.cut(source, keys[0], rate), target),
    lambda source, target, keys: (source, of_target.cut(target, keys[1], rate)),
  ]


class Merges:
  """The merges of a vocabulary, applied to characters and bytes as SentencePiece applies them.

  The next merge always joins the two neighbours whose piece has the lowest id, the leftmost first.
  Symbols such as placeholders stay whole.
  """

  def __init__(self, vocabulary: Vocabulary):
    self.size = vocabulary.size
    pieces = {
      piece.piece: token
      for token, piece in enumerate(vocabulary.proto().pieces)
      if piece.type == _Piece.NORMAL
    }
    spelling = [[token] for token in range(self.size)]
    for piece, token in pieces.items():
      spelling[token] = [pieces[character] for character in piece]
    self._spelling = Sentences.join(spelling)
    table = {}
    for symbols in spelling:
      for pair in itertools.pairwise(symbols):
        table[pair] = self.size  # Of one word, even if the two alone make no piece.
    for piece, token in pieces.items():
      for cut in range(1, len(piece)):
        left = pieces.get(piece[:cut])
        right = pieces.get(piece[cut:])
        if left is not None and right is not None:
          table[left, right] = token
    table[self.size, 0] = 0  # Larger than any pair.
    pairs = np.array(list(table))
    keys = pairs[:, 0] * self.size + pairs[:, 1]
    order = np.argsort(keys)
    self._keys = keys[order]
    self._pieces = np.array(list(table.values()))[order]

  def cut(self, sentences: Sentences, keys: np.ndarray, rate: float) -> Sentences:
    """Cuts encoded sentences anew (Provilkov et al., 2020, "BPE-Dropout", section 3.1).

    Leaves out each merge, for good, with a probability of `rate`, by the sentences' uint64 keys.
    """
    chunks = np.cumsum(sentences.lengths, dtype=np.int64) // _CHUNK
    parts = []
    for number in np.unique(chunks):
      some = np.flatnonzero(chunks == number)
      tokens = sentences.take(some)
      parts.append(
        self._cut_together(sentences.lengths[some], tokens, keys[some], rate)
      )
    return Sentences.concatenate(parts)

  def _piece(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the pieces that symbols make with their right neighbours.

    It is `size` for a pair that only occurs within longer pieces, and `size + 1` for one in none.
    """
    keys = left.astype(np.int64) * self.size + right
    places = np.searchsorted(self._keys, keys)
    return np.where(self._keys[places] == keys, self._pieces[places], self.size + 1)

  def _cut_together(self, lengths, tokens, keys, rate) -> Sentences:
    in_sentence = np.add.reduceat(
      self._spelling.lengths[tokens], np.cumsum(lengths) - lengths
    )
    symbols = self._spelling.take(tokens)
    draws = mix(
      np.repeat(keys, in_sentence) + count_from_zero(in_sentence).astype(np.uint64)
    )

    def costs_of(first, second, end):
      """Returns the costs of merges of two places; the merge with the lowest cost comes next.

      A draw depends on `first` and on `end`, the place behind. Each merge has one draw, because no
      other merge ever joins exactly the symbols from `first` to `end`.
      """
      pieces = self._piece(symbols[first], symbols[second])
      drawn = mix(draws[first] + (end - first).astype(np.uint64)) >> np.uint64(11)
      possible = (pieces < self.size) & (drawn >= rate * 2**53)
      return np.where(possible, (pieces << _PLACE_BITS) + first, _NEVER)

    # Nothing merges across words. Each has the places of its symbols, and the place behind it.
    is_start = self._piece(symbols[:-1], symbols[1:]) > self.size
    starts = np.concatenate([[0], 1 + np.flatnonzero(is_start)])
    sizes = np.diff(starts, append=len(symbols)) + 1
    in_word = count_from_zero(sizes)
    places = np.repeat(starts, sizes) + in_word
    costs = np.full(len(places), _NEVER)
    left = np.flatnonzero(in_word < np.repeat(sizes - 2, sizes))
    costs[left] = costs_of(places[left], places[left] + 1, places[left] + 2)
    while len(sizes):  # Makes one merge in each word.
      best = np.minimum.reduceat(costs, np.cumsum(sizes) - sizes)
      going_on = best < _NEVER
      here = np.repeat(going_on, sizes)
      places = places[here]
      costs = costs[here]
      sizes = sizes[going_on]
      best = best[going_on]
      left = np.flatnonzero(costs == np.repeat(best, sizes))
      symbols[places[left]] = best >> _PLACE_BITS
      symbols[places[left + 1]] = _JOINED
      places = np.delete(places, left + 1)
      costs = np.delete(costs, left + 1)
      sizes -= 1
      # The merged symbol has new neighbours, if the word continues on that side.
      left -= np.arange(len(left))
      ends = np.cumsum(sizes)
      costs[left] = _NEVER
      changed = np.concatenate([left[left > ends - sizes] - 1, left[left < ends - 2]])
      costs[changed] = costs_of(
        places[changed], places[changed + 1], places[changed + 2]
      )
    kept = symbols != _JOINED
    lengths = np.add.reduceat(
      kept, np.cumsum(in_sentence) - in_sentence, dtype=np.int32
    )
    return Sentences.end_to_end(symbols[kept], lengths)
