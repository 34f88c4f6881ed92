"""Scores of given translations: their log-probabilities by a model (forced decoding)."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from absl import logging

from transformer.data.batch import EOS_ID, PAD_ID
from transformer.decoding.batch_search import mean_probability
from transformer.decoding.forced_decoding import forced, pair_batches
from transformer.model.transformer import Transformer
from transformer.ops.linear import logits

_LINES_SHOWN = 5


class Likelihood(NamedTuple):
  """The likelihood of a translation.

  Attributes:
    log_prob: natural logarithm, summed over the tokens, the end token included; None if
      the pair was too long.
    tokens: the number of tokens, the end token included.
    pieces: each token as a piece of the vocabulary, with its logarithm; empty if they were not
      wanted, or the pair was too long.
  """

  log_prob: float | None
  tokens: int
  pieces: tuple[tuple[str, float], ...] = ()


def make_scorer(models: Sequence[Transformer], by_token: bool = False) -> Callable[..., jax.Array]:
  """Builds the scorer of a batch, a pure function on arrays.

  Args:
    models: the models, whose probabilities of each token are averaged.
    by_token: whether the log-probabilities stay apart.

  Returns:
    A function (params of each model, source_BS, target_BT) -> float32 [B]. It takes
    padded ids with their end tokens, and returns the log-probabilities of the targets; or
    [B, T], those of their tokens, zero for padding. All positions are computed at once, by
    teacher forcing.
  """

  def score(params, source_BS, target_BT):
    batch = forced(source_BS, target_BT)
    log_probs = []
    for model, own in zip(models, params, strict=True):
      log_probs.append(jax.nn.log_softmax(logits(*model.apply({'params': own}, *batch))))
    chosen_BT = jnp.take_along_axis(mean_probability(log_probs), target_BT[..., None], -1)[..., 0]
    chosen_BT = chosen_BT * (target_BT != PAD_ID)
    return chosen_BT if by_token else jnp.sum(chosen_BT, axis=1)

  return score


def score_pairs(models: Sequence[Transformer], params: Sequence, vocabulary,
                sources: Sequence[str], targets: Sequence[str], most: tuple[int, int],
                batch_size: int, by_token: bool = False) -> list[Likelihood]:
  """Scores a translation of each source.

  Args:
    models: as in `make_scorer`.
    params: the parameters of each model.
    vocabulary: encodes text, by its `source` and its `target`.
    sources: lines of text.
    targets: a translation of each source.
    most: the most tokens of a source and of a target, end token included; the first
      number is not above the second.
    batch_size: the number of pairs that are scored together.
    by_token: whether each likelihood has its pieces; their sum is then the log-probability.

  Returns:
    The likelihood of each target. A pair with a longer side is not scored; a warning
    names its line.
  """
  encoded = [[[*ids, EOS_ID] for ids in each.encode_batch(side)]
             for each, side in ((vocabulary.source, sources), (vocabulary.target, targets))]
  found = [Likelihood(None, len(ids)) for ids in encoded[1]]
  too_long = set()
  for side, name, limit in zip(encoded, ('source', 'reference'), most, strict=True):
    longer = {number: len(ids) for number, ids in enumerate(side) if len(ids) > limit}
    too_long |= longer.keys()
    _warn_of_longer(name, limit, longer)
  scorer = jax.jit(make_scorer(models, by_token))
  asked = [index for index in range(len(found)) if index not in too_long]
  for batch in pair_batches(*encoded, asked, most, batch_size):
    log_probs = jax.device_get(scorer(tuple(params), batch.source_BS, batch.target_BT))
    for row, index in enumerate(batch.chosen):
      if by_token:
        scores = log_probs[row, :len(encoded[1][index])].tolist()
        pieces = map(vocabulary.target.piece, encoded[1][index])
        found[index] = Likelihood(math.fsum(scores), len(scores),
                                  tuple(zip(pieces, scores, strict=True)))
      else:
        found[index] = found[index]._replace(log_prob=float(log_probs[row]))
  return found


def _warn_of_longer(name: str, limit: int, longer: dict[int, int]):
  """Warns of lines that are too long; `longer` has the number of tokens by index of line."""
  if longer:
    shown = ', '.join(f'line {number + 1} ({tokens} tokens)'
                      for number, tokens in itertools.islice(longer.items(), _LINES_SHOWN))
    others = len(longer) - _LINES_SHOWN
    logging.warning('%d lines of the %s have more than %d tokens and get nan: %s', len(longer),
                    name, limit, shown + f' and {others} others' * (others > 0))
