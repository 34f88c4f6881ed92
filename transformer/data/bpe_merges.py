"""Cuts sentences by byte-pair merges, some of which are left out at random: BPE-dropout.

SentencePiece leaves out merges too, but no seed makes its generator draw the same
numbers in two processes. A draw here is a hash of the sentence's key and of the
merge's place in the sentence; it depends on nothing else.
"""

import itertools

import numpy as np

from transformer.data.encoding import Sentences, count_from_zero
from transformer.data.shuffling import mix
from transformer.data.vocabulary import BYTE_IDS, Vocabulary

_CHUNK = 1 << 14  # tokens that are cut together: arrays that a cache holds
_PLACE_BITS = 32
_NEVER = np.iinfo(np.int64).max  # a cost that nothing reaches
_JOINED = -1  # in the place of a symbol that belongs to the one before


class Merges:
  """The merges that the pieces of a vocabulary stand for.

  A sentence is spelt in symbols: characters, bytes, and its end token. The next
  merge is of the two neighbours that give the first piece of the vocabulary; of
  equal ones, the leftmost. This is how SentencePiece encodes.
  """

  def __init__(self, vocabulary: Vocabulary):
    """Reads the pieces of what `Vocabulary.train` made."""
    pieces = {vocabulary.piece(token): token for token in range(BYTE_IDS.stop, vocabulary.size)}
    spelling = [[pieces[character] for character in piece] for piece in pieces]
    self._spelling = Sentences.join([*([token] for token in range(BYTE_IDS.stop)), *spelling])
    # Neighbours within a piece share a word, even where they are no piece themselves.
    table = {pair: vocabulary.size for symbols in spelling
             for pair in itertools.pairwise(symbols)}
    table |= {(pieces[piece[:cut]], pieces[piece[cut:]]): token
              for piece, token in pieces.items() for cut in range(1, len(piece))
              if piece[:cut] in pieces and piece[cut:] in pieces}
    self.size = vocabulary.size
    pairs = np.array([*table, (self.size, 0)])  # The last row is more than any pair.
    keys = pairs[:, 0] * self.size + pairs[:, 1]
    order = np.argsort(keys)
    self._keys, self._pieces = keys[order], np.array([*table.values(), 0])[order]

  def cut(self, sentences: Sentences, keys: np.ndarray, rate: float) -> Sentences:
    """Cuts sentences anew (Provilkov et al., 2020, "BPE-Dropout", section 3.1).

    Each merge that would be made next is left out with a probability of `rate`,
    and then does not come up again.

    Args:
      sentences: encoded by the vocabulary, each with its end token.
      keys: uint64 [sentences], which decide which merges are left out.
      rate: in [0, 1]; 0 gives what the vocabulary encodes, 1 single characters.

    Returns:
      The same text in the same order. What becomes of a sentence is a function of
      its text, its key and `rate`.
    """
    chunks = np.cumsum(sentences.lengths, dtype=np.int64) // _CHUNK
    chosen = [np.flatnonzero(chunks == number) for number in np.unique(chunks)]
    return Sentences.concatenate([
        self._cut_together(sentences.lengths[some], sentences.take(some), keys[some], rate)
        for some in chosen])

  def piece(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The pieces that pairs of symbols make.

    Args:
      left: ids of symbols, an array of integers.
      right: likewise, of their neighbours.

    Returns:
      int64, of the same shape: ids; the vocabulary's size for what is only a part
      of a longer piece, and more than that for what is in no piece.
    """
    keys = left.astype(np.int64) * self.size + right
    places = np.searchsorted(self._keys, keys)
    return np.where(self._keys[places] == keys, self._pieces[places], self.size + 1)

  def _cut_together(self, lengths, tokens, keys, rate) -> Sentences:
    sizes = np.add.reduceat(self._spelling.lengths[tokens], np.cumsum(lengths) - lengths)
    symbols = self._spelling.take(tokens)
    draws = mix(np.repeat(keys, sizes) + count_from_zero(sizes).astype(np.uint64))
    _Text(self, symbols, draws, rate).merge()
    left = symbols != _JOINED
    return Sentences.end_to_end(
        symbols[left], np.add.reduceat(left, np.cumsum(sizes) - sizes, dtype=np.int32))


class _Text:
  """Sentences in the course of being merged, and the merges that may come next."""

  def __init__(self, merges: Merges, symbols: np.ndarray, draws: np.ndarray, rate: float):
    self._merges, self._symbols, self._draws, self._rate = merges, symbols, draws, rate

  def merge(self):
    """Makes all merges in `symbols`, in place, in all words at a time."""
    places, costs, sizes = self._words()
    while len(sizes):
      best = np.minimum.reduceat(costs, np.cumsum(sizes) - sizes)
      going_on = best < _NEVER
      here = np.repeat(going_on, sizes)
      places, costs, sizes, best = places[here], costs[here], sizes[going_on], best[going_on]
      left = np.flatnonzero(costs == np.repeat(best, sizes))
      self._symbols[places[left]] = best >> _PLACE_BITS
      self._symbols[places[left + 1]] = _JOINED
      kept = np.ones(len(places), bool)
      kept[left + 1] = False
      places, costs = places[kept], costs[kept]
      sizes = sizes - 1
      # The merged symbol has a new neighbour on either side, where the word goes on there.
      left -= np.arange(len(left))
      ends = np.cumsum(sizes)
      costs[left] = _NEVER
      before, after = left[left > ends - sizes] - 1, left[left < ends - 2]
      changed = np.concatenate([before, after])
      first, second = places[changed], places[changed + 1]
      pieces = self._merges.piece(self._symbols[first], self._symbols[second])
      costs[changed] = self._costs(pieces, first, places[changed + 2])

  def _words(self):
    """Splits the text into words, between which no merge is possible.

    Returns:
      Places in `symbols`, those of each word of several symbols and the one behind
      it; the cost of each one's merge with the next; the number of places by word.
    """
    pieces = self._merges.piece(self._symbols[:-1], self._symbols[1:])
    joins = np.concatenate([[False], pieces <= self._merges.size, [False]])
    first, last = np.flatnonzero(joins[1:] & ~joins[:-1]), np.flatnonzero(joins[:-1] & ~joins[1:])
    sizes = last - first + 2
    places = np.repeat(first, sizes) + count_from_zero(sizes)
    costs = np.full(len(places), _NEVER)
    left = np.flatnonzero(np.repeat(last, sizes) > places)
    first = places[left]
    costs[left] = self._costs(pieces[first], first, first + 2)
    return places, costs, sizes

  def _costs(self, pieces, first, end) -> np.ndarray:
    """What orders merges into `pieces`, each of the symbols from `first` to `end`.

    No other two neighbours ever span the same symbols, so this draws for each merge once.
    """
    draws = mix(self._draws[first] + (end - first).astype(np.uint64)) >> np.uint64(11)
    possible = (pieces < self._merges.size) & (draws >= self._rate * 2 ** 53)
    return np.where(possible, (pieces << _PLACE_BITS) + first, _NEVER)
