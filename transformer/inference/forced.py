"""How likely a model finds translations that it is given."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.errors import UserError
from transformer.inference.translate import mean_probability, padded_length
from transformer.model.transformer import Transformer


class Likelihood(NamedTuple):
  """How likely a translation is.

  Attributes:
    log_prob: natural logarithm, summed over its tokens, the end token included.
    tokens: how many these are.
  """

  log_prob: float
  tokens: int


def make_scorer(models: Sequence[Transformer]) -> Callable[..., jax.Array]:
  """Builds the scorer of a batch, a pure function on arrays.

  Args:
    models: their probabilities of each token are averaged.

  Returns:
    A function (params of each, source_BS, target_BT) -> float32 [B]: padded ids with
    their end tokens in, log-probabilities of the targets out. Everything is computed
    at once, by teacher forcing.
  """

  def score(params, source_BS, target_BT):
    real_BS, real_BT = source_BS != PAD_ID, target_BT != PAD_ID

    def positions(tokens):
      return jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)

    before_BT = jnp.pad(target_BT, ((0, 0), (1, 0)), constant_values=BOS_ID)[:, :-1]
    log_probs = []
    for model, own in zip(models, params, strict=True):
      x_BTD, _ = model.apply(
          {'params': own}, source_BS, real_BS.astype(jnp.int32), positions(source_BS), before_BT,
          real_BT.astype(jnp.int32), positions(target_BT))
      logits_BTN = model.apply({'params': own}, x_BTD, method='logits')
      log_probs.append(jax.nn.log_softmax(logits_BTN))
    chosen_BT = jnp.take_along_axis(mean_probability(log_probs), target_BT[..., None], -1)[..., 0]
    return jnp.sum(chosen_BT * real_BT, axis=1)

  return score


def score_pairs(models: Sequence[Transformer], params: Sequence, vocabulary,
                sources: Sequence[str], targets: Sequence[str], max_length: int,
                batch_size: int) -> list[Likelihood]:
  """Scores a translation of each source.

  Args:
    models: as in `make_scorer`.
    params: of each.
    vocabulary: encodes text.
    sources: lines of text.
    targets: a line for each.
    max_length: the most tokens of either, end token included.
    batch_size: pairs that are scored together.

  Raises:
    UserError: a line is longer; names it.
  """
  encoded = [[[*ids, EOS_ID] for ids in vocabulary.encode_batch(list(side))]
             for side in (sources, targets)]
  for side, name in zip(encoded, ('source', 'reference'), strict=True):
    for number, ids in enumerate(side, 1):
      if len(ids) > max_length:
        raise UserError(f'line {number} of the {name} has {len(ids)} tokens, more than '
                        f'data.max_length={max_length}, so it cannot be scored; leave it out')
  lengths = [padded_length(max(map(len, pair)), max_length)
             for pair in zip(*encoded, strict=True)]
  scorer = jax.jit(make_scorer(models))
  found = [Likelihood(0.0, 0)] * len(sources)
  order = sorted(range(len(sources)), key=lengths.__getitem__)
  while order:
    length = lengths[order[0]]
    chosen = [index for index in order[:batch_size] if lengths[index] == length]
    order = order[len(chosen):]
    sides = np.full((2, batch_size, length), PAD_ID, np.int32)
    for row, index in enumerate(chosen):
      for side, ids in zip(sides, (encoded[0][index], encoded[1][index]), strict=True):
        side[row, :len(ids)] = ids
    log_probs = jax.device_get(scorer(tuple(params), *sides))
    for row, index in enumerate(chosen):
      found[index] = Likelihood(float(log_probs[row]), len(encoded[1][index]))
  return found
