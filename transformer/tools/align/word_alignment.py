"""Word alignments of given translations, from the model's cross-attention."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.batch import EOS_ID
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
  shift: bool = False,
) -> list[list[Link]]:
  """Links the words of sources to those of their translations, by a run or by an ensemble.

  Each word of a target has one link, if its source has any word. Words beyond the longest sentence
  of a search get none. `layer` and `shift` are as in `mean_attention`.
  """
  attention = jax.jit(mean_attention([run.model for run in runs], layer, shift))
  config, languages = runs[0].config, (runs[0].vocabulary.source, runs[0].vocabulary.target)
  most = longest(config)
  encoded = [
    [[*ids[:-1][: limit - 1], EOS_ID] for ids in side]
    for side, limit in zip(encode_pairs(runs[0].vocabulary, sources, targets), most, strict=True)
  ]
  params = jax.device_put(tuple(run.params for run in runs), jax.local_devices()[0])
  links: list[list[Link]] = [[] for _ in sources]
  for indices, *sides in pair_batches(tuple(encoded), most, config.decode.batch_size):
    weights_BTS = jax.device_get(attention(params, *sides))
    check_finite(runs, weights_BTS.sum((1, 2)), (index + 1 for index in indices))
    for weights_TS, index in zip(weights_BTS, indices, strict=False):
      in_source_SI, in_target_TJ = (
        word_parts([piece_bytes(language, token) for token in side[index]])
        for language, side in zip(languages, encoded, strict=True)
      )
      links[index] = link_words(
        weights_TS[: len(in_target_TJ), : len(in_source_SI)], in_target_TJ, in_source_SI
      )
  return links


def check_layer(models: Sequence[Model], layer: int | None):
  """Refuses a layer, counted from 1, that a decoder does not have; None is all layers."""
  depth = min(model.config.decoder_depth for model in models)
  if layer is not None and not 1 <= layer <= depth:
    raise UserError(
      f'--layer must be a layer of the decoder, from 1 at the bottom to {depth}; got {layer}'
    )


def mean_attention(
  models: Sequence[Model], layer: int | None = None, shift: bool = False
) -> Callable[..., jax.Array]:
  """Builds a function (params of each model, source_BS, target_BT) -> mean cross-attention_BTS.

  Ids are padded, with end tokens. Row t is for target token t. `layer` counts from 1 at the bottom;
  None is the mean of all layers. With `shift`, row t is the attention of the position at which
  token t is the decoder's input: SHIFT-ATT of Chen et al., 2020. Then the last row is zero.
  """

  def attention(params, source_BS, target_BT):
    means = []
    for model, own in zip(models, params, strict=True):
      layers = attention_weights(model, own, *forced(source_BS, target_BT)).cross
      chosen = layers if layer is None else [layers[layer - 1]]
      means.append(sum(jnp.mean(weights_BHTS, axis=-3) for weights_BHTS in chosen) / len(chosen))
    mean_BTS = sum(means) / len(means)
    return jnp.pad(mean_BTS, ((0, 0), (0, 1), (0, 0)))[:, 1:] if shift else mean_BTS

  return attention


def link_words(
  weights_TS: np.ndarray, in_target_TJ: np.ndarray, in_source_SI: np.ndarray
) -> list[Link]:
  """Links each target word to the source word to which its tokens attend most, or the first.

  A word attends by the sum over the tokens of both words; `in_target_TJ` and `in_source_SI` are
  true where a token is a part of a word.
  """
  sums_JI = in_target_TJ.T.astype(float) @ weights_TS @ in_source_SI.astype(float)
  return sorted((int(np.argmax(sums_I)), j) for j, sums_I in enumerate(sums_JI) if sums_I.any())
