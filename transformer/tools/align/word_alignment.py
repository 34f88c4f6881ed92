"""Word alignments of given translations, from the model's cross-attention."""

from collections.abc import Sequence

import numpy as np

from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.batching import max_lengths, truncated
from transformer.errors import UserError
from transformer.runs.loading import check_finite_scores
from transformer.tools.align.links import Link, piece_bytes, token_word_overlap
from transformer.trained_run import TrainedRun


def align(
  run: TrainedRun,
  sources: Sequence[str],
  targets: Sequence[str],
  layer: int | None = None,
) -> list[list[Link]]:
  """Aligns the words of sources with the words of their translations.

  Each target word has one link, unless its source has no words. Words after truncation to the
  maximum length of a search have no link. `layer` counts from 1 at the bottom; None is the mean of
  all layers.

  Raises:
    UserError: attention weights are not finite, because the run has diverged.
  """
  max_source, max_target = max_lengths(run.config)
  links = []
  for line_number, (source, target) in enumerate(zip(sources, targets, strict=True), 1):
    weights_TS = _mean_attention(run, source, target, layer)
    check_finite_scores([run], [weights_TS.sum()], line_number)
    in_source_SI = _words_of(run.vocabulary.source, source, max_source)
    in_target_TJ = _words_of(run.vocabulary.target, target, max_target)
    links.append(link_words(weights_TS, in_target_TJ, in_source_SI))
  return links


def _words_of(vocabulary: Vocabulary, line: str, max_length: int) -> np.ndarray:
  """Returns which of the first `max_length` tokens overlap which words, bool [tokens, words]."""
  ids = truncated(vocabulary.encode(line), max_length)
  return token_word_overlap([piece_bytes(vocabulary, token) for token in ids])


def check_layer(run: TrainedRun, layer: int | None):
  """Raises `UserError` if the decoder has no such layer, counted from 1; None means all layers."""
  depth = run.model.config.decoder_depth
  if layer is not None and not 1 <= layer <= depth:
    raise UserError(
      f'--layer must be a layer of the decoder, from 1 at the bottom to {depth}; got {layer}'
    )


def _mean_attention(
  run: TrainedRun, source: str, target: str, layer: int | None
) -> np.ndarray:
  """Returns the cross-attention weights [T, S] of one layer or all layers, averaged over heads."""
  cross_LHTS = np.asarray(run.attention(source, target).cross)
  if layer is not None:
    return cross_LHTS[layer - 1].mean(axis=0)
  return cross_LHTS.mean(axis=(0, 1))


def link_words(
  weights_TS: np.ndarray, in_target_TJ: np.ndarray, in_source_SI: np.ndarray
) -> list[Link]:
  """Links each target word to the source word with the highest attention; ties go to the first.

  The attention between two words is the sum over the tokens of both. `in_target_TJ` and
  `in_source_SI` are True if a token overlaps a word.
  """
  sums_JI = in_target_TJ.T.astype(float) @ weights_TS @ in_source_SI.astype(float)
  links = []
  for j, sums_I in enumerate(sums_JI):
    if sums_I.any():
      links.append((int(np.argmax(sums_I)), j))
  return sorted(links)
