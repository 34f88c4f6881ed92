"""BPE-dropout of training sentences (Provilkov et al., 2020)."""

from transformer.data.bpe_merges import Merges
from transformer.data.varied_batches import Vary
from transformer.data.vocabularies import RunVocabulary, is_shared


def make_bpe_dropout(vocabulary: RunVocabulary, rate: float) -> Vary:
  """Returns a variation that cuts sentences into other pieces; see `Merges.cut`.

  Args:
    vocabulary: the vocabulary that the pairs are encoded with.
    rate: the probability that a merge is left out, above 0.
  """
  source = Merges(vocabulary.source)
  merges = source, source if is_shared(vocabulary) else Merges(vocabulary.target)
  return lambda side, sentences, keys: merges[side].cut(sentences, keys, rate)
