"""Word alignments of given translations, from the model's cross-attention."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from transformer.data.batch import EOS_ID
from transformer.data.word_parts import word_parts
from transformer.decoding.forced_decoding import forced, pair_batches
from transformer.errors import UserError
from transformer.model.attention_weights import cross_attention_weights
from transformer.model.transformer import Transformer
from transformer.ops.word_links import link_words


def check_layer(models: Sequence[Transformer], layer: int | None):
  """Refuses a layer, counted from 1, that a decoder does not have; None is all layers.

  Raises:
    UserError: there is no such layer.
  """
  depth = min(model.config.decoder_depth for model in models)
  if layer is not None and not 1 <= layer <= depth:
    raise UserError(f'--alignment_layer must be a layer of the decoder, from 1 at the bottom to '
                    f'{depth}; got {layer}')


def make_attention(models: Sequence[Transformer], layer: int | None = None, shift: bool = False,
                   guided: Sequence[int] = ()) -> Callable[..., jax.Array]:
  """Builds the mean cross-attention of a batch, a pure function on arrays.

  Args:
    models: the models, whose weights are averaged.
    layer: the layer of the decoder, from 1 at the bottom; None is the mean of all layers, or the
      guided one.
    shift: takes the attention of the position after the one that writes a token, at which the
      token is the decoder's input: SHIFT-ATT of Chen et al., 2020.
    guided: for each model its layer whose first head was trained towards links, and is used alone;
      0 is none. Empty is none for all.

  Returns:
    A function (params of each model, source_BS, target_BT) -> float32 [B, T, S], the mean over
    heads and then over models. It takes padded ids with their end tokens. Row t is for target
    token t. With `shift`, the row of the last position is zero.
  """

  def attention(params, source_BS, target_BT):
    batch = forced(source_BS, target_BT)
    means = [_mean(cross_attention_weights(model, own, *batch), layer, trained)
             for model, own, trained in zip(models, params, guided or [0] * len(models),
                                            strict=True)]
    mean_BTS = sum(means) / len(means)
    return jnp.pad(mean_BTS, ((0, 0), (0, 1), (0, 0)))[:, 1:] if shift else mean_BTS

  return attention


def _mean(layers, layer, guided):
  """Returns the mean over the heads of one layer or of all; or the first head of a guided layer."""
  if layer is None and guided:
    return layers[guided - 1][..., 0, :, :]
  chosen = layers if layer is None else [layers[layer - 1]]
  return sum(jnp.mean(weights_BHTS, axis=-3) for weights_BHTS in chosen) / len(chosen)


class WordAligner:
  """Links the words of sentences to those of their translations.

  Words are what stands between ASCII white space. The links of a pair do not depend on other pairs.
  """

  def __init__(self, models: Sequence[Transformer], vocabulary, most: tuple[int, int],
               batch_size: int, layer: int | None = None, shift: bool = False,
               guided: Sequence[int] = ()):
    """Builds the attention; it is compiled when a length first occurs.

    Args:
      models: one, or those of an ensemble.
      vocabulary: splits sources and targets into pieces.
      most: the most tokens of a source and of a target, end token included; longer ones are cut,
        and words beyond the cut get no links. The first number is not above the second.
      batch_size: the number of pairs that are computed together.
      layer: as in `make_attention`.
      shift: as in `make_attention`.
      guided: as in `make_attention`.

    Raises:
      UserError: as `check_layer`.
    """
    check_layer(models, layer)
    self._vocabularies = vocabulary.source, vocabulary.target
    self._most = most
    self._batch_size = batch_size
    self._attention = jax.jit(make_attention(models, layer, shift, guided))

  def __call__(self, params: Sequence, sources: Sequence[str],
               targets: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Returns pairs of a source word and a target word, both from 0, for each line.

    Each word of a target has one link, if its source has any word.

    Args:
      params: the parameters of each model.
      sources: lines of text.
      targets: a translation of each source.
    """
    encoded = [[[*ids[:limit - 1], EOS_ID] for ids in vocabulary.encode_batch(side)]
               for vocabulary, side, limit in zip(self._vocabularies, (sources, targets),
                                                  self._most, strict=True)]
    params = jax.device_put(tuple(params), jax.local_devices()[0])
    found: list[list[tuple[int, int]]] = [[] for _ in sources]
    for batch in pair_batches(*encoded, range(len(found)), self._most, self._batch_size):
      weights_BTS = jax.device_get(self._attention(params, batch.source_BS, batch.target_BT))
      for weights_TS, index in zip(weights_BTS, batch.chosen, strict=False):
        in_source_SI, in_target_TJ = (
            word_parts([vocabulary.piece_bytes(token) for token in side[index]])
            for vocabulary, side in zip(self._vocabularies, encoded, strict=True))
        found[index] = link_words(weights_TS[:len(in_target_TJ), :len(in_source_SI)],
                                  in_target_TJ, in_source_SI)
    return found
