"""Word alignments of given translations, from the model's cross-attention."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.batch import EOS_ID
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.pairs import encode_pairs, forced, longest, pair_batches
from transformer.errors import UserError
from transformer.model.attention_weights import attention_weights
from transformer.model.building import Model
from transformer.runs.loading import Run, check_finite
from transformer.tools.align.links import Link, piece_bytes, word_parts


def align(
  runs: Sequence[Run],
  sources: Sequence[str],
  targets: Sequence[str],
  layer: int | None = None,
) -> list[list[Link]]:
  """Links the words of sources to those of their translations, by a run or by an ensemble.

  Each word of a target has one link, if its source has any word. Words beyond the longest sentence
  of a search get none. `layer` is as in `mean_attention`.
  """
  attention = jax.jit(mean_attention([run.model for run in runs], layer))
  config = runs[0].config
  vocabulary = runs[0].vocabulary
  most_source, most_target = most = longest(config)
  encoded_sources, encoded_targets = encode_pairs(vocabulary, sources, targets)
  source_ids = [_cut(ids, most_source) for ids in encoded_sources]
  target_ids = [_cut(ids, most_target) for ids in encoded_targets]
  params = jax.device_put(tuple(run.params for run in runs), jax.local_devices()[0])
  links: list[list[Link]] = [[] for _ in sources]
  sides = (source_ids, target_ids)
  for indices, source_BS, target_BT in pair_batches(
    sides, most, config.decode.batch_size
  ):
    weights_BTS = jax.device_get(attention(params, source_BS, target_BT))
    check_finite(runs, weights_BTS.sum((1, 2)), (index + 1 for index in indices))
    for weights_TS, index in zip(weights_BTS, indices, strict=False):
      in_source_SI = _words_of(vocabulary.source, source_ids[index])
      in_target_TJ = _words_of(vocabulary.target, target_ids[index])
      weights_TS = weights_TS[: len(in_target_TJ), : len(in_source_SI)]
      links[index] = link_words(weights_TS, in_target_TJ, in_source_SI)
  return links


def _cut(ids: Sequence[int], most: int) -> list[int]:
  """Returns ids of at most `most` tokens, the last of which is the end token."""
  return [*ids[:-1][: most - 1], EOS_ID]


def _words_of(vocabulary: Vocabulary, ids: Sequence[int]) -> np.ndarray:
  """Returns which tokens are parts of which words, bool [tokens, words]."""
  return word_parts([piece_bytes(vocabulary, token) for token in ids])


def check_layer(models: Sequence[Model], layer: int | None):
  """Refuses a layer, counted from 1, that a decoder does not have; None is all layers."""
  depth = min(model.config.decoder_depth for model in models)
  if layer is not None and not 1 <= layer <= depth:
    raise UserError(
      f'--layer must be a layer of the decoder, from 1 at the bottom to {depth}; got {layer}'
    )


def mean_attention(
  models: Sequence[Model], layer: int | None = None
) -> Callable[..., jax.Array]:
  """Builds a function (params of each model, source_BS, target_BT) -> mean cross-attention_BTS.

  Ids are padded, with end tokens. Row t is for target token t. `layer` counts from 1 at the bottom;
  None is the mean of all layers.
  """

  def attention(params, source_BS, target_BT):
    means = []
    for model, own in zip(models, params, strict=True):
      layers = attention_weights(model, own, *forced(source_BS, target_BT)).cross
      chosen = layers if layer is None else [layers[layer - 1]]
      of_layers = [jnp.mean(weights_BHTS, axis=-3) for weights_BHTS in chosen]
      means.append(sum(of_layers) / len(chosen))
    return sum(means) / len(means)

  return attention


def link_words(
  weights_TS: np.ndarray, in_target_TJ: np.ndarray, in_source_SI: np.ndarray
) -> list[Link]:
  """Links each target word to the source word to which its tokens attend most, or the first.

  A word attends by the sum over the tokens of both words; `in_target_TJ` and `in_source_SI` are
  true where a token is a part of a word.
  """
  sums_JI = in_target_TJ.T.astype(float) @ weights_TS @ in_source_SI.astype(float)
  links = []
  for j, sums_I in enumerate(sums_JI):
    if sums_I.any():
      links.append((int(np.argmax(sums_I)), j))
  return sorted(links)
