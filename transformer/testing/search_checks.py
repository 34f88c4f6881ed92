"""Checks of decoding: cached steps and the scores of searches agree with teacher forcing."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.batch import BOS_ID, EOS_ID
from transformer.decoding.batching import padded
from transformer.decoding.config import DecodeOptions
from transformer.decoding.decoder_search import DecoderSearch, SearchInputs
from transformer.ops.beam_search import beam_search
from transformer.ops.search import (
  Hypotheses,
  Search,
  grow_state,
  pad_sources,
  plain_arrays,
  reorder_state,
  run_search,
  with_arrays,
)
from transformer.testing.model_under_test import ModelUnderTest, require
from transformer.testing.random_batches import (
  FIRST,
  B,
  N,
  S,
  T,
  W,
  random_pair,
  teacher_forced_inputs,
)

# The initial capacity of the search state, in target positions; it grows to T.
_INITIAL_CAPACITY = 7
# The number of source positions before padding.
_SHORTER = 17
_SEARCH = DecodeOptions(beam_size=W, max_extra_length=T - S)


def cached_decoding_equals_teacher_forcing(subject: ModelUnderTest):
  """Checks that `start` and `step` agree with `__call__`, even after hypotheses are reordered."""
  for reorders, message in (
    (
      False,
      'the probabilities of cached decoding steps differ from teacher forcing, so translations '
      "would differ from the trained model's; compare `start` and `step` with `__call__`",
    ),
    (
      True,
      'after hypotheses are reordered, the probabilities of decoding steps differ from teacher '
      'forcing, so a beam search would mix up its hypotheses; arrays [B, W, ...] of the state '
      'need per_hypothesis=True',
    ),
  ):
    for actual, expected in _steps(subject, reorders):
      require(subject.is_close(actual, expected), message)


def _steps(subject, reorders: bool):
  """Yields the log-probabilities of cached steps and of teacher forcing, [B, W, N] per position.

  The tokens are random. Like a search, the loop drops some hypotheses and continues others more
  than once (with `reorders`), grows the state, and pads the sources.
  """
  rng = np.random.default_rng(0)
  apply = functools.partial(subject.model.apply, {'params': subject.params})
  start = jax.jit(functools.partial(apply, method='start'), static_argnums=3)
  step = jax.jit(functools.partial(apply, method='step'))
  sources = [random_pair(length, 1, length)[0] for length in (5, _SHORTER, 11)]
  no_targets_BT = np.zeros((B, T), np.int32)
  rows = teacher_forced_inputs(sources, no_targets_BT)
  state, source = start(*(side[:, :_SHORTER] for side in rows[:3]), W)
  source = plain_arrays(pad_sources(source, S))
  state = grow_state(state, _INITIAL_CAPACITY)
  tokens_BWT = np.full((B, W, T), BOS_ID, np.int32)
  for index in range(T):
    if index == _INITIAL_CAPACITY:
      state = grow_state(state, T)
    if index and reorders:
      origin_BW = rng.integers(0, W, (B, W))
      tokens_BWT = np.take_along_axis(tokens_BWT, origin_BW[..., None], axis=1)
      state = reorder_state(state, origin_BW)
    if index:
      tokens_BWT[:, :, index] = rng.integers(FIRST, N, (B, W))
    newest_BW = tokens_BWT[:, :, index]
    arrays = plain_arrays(state)
    logits_BWN, new_arrays = step(newest_BW, jnp.int32(index), arrays, source)
    require(
      logits_BWN.shape == (B, W, N) and logits_BWN.dtype == jnp.float32,
      f'`step` must return float32 logits [B, W, N] = {B, W, N}; got {logits_BWN.dtype} '
      f'{logits_BWN.shape}: no search could use them',
    )
    state = with_arrays(state, new_arrays)
    forced_BWTN = _forced(subject, sources, tokens_BWT)
    yield jax.nn.log_softmax(logits_BWN), forced_BWTN[:, :, index]


def _forced(subject, sources, tokens_BWT) -> np.ndarray:
  """Returns the log-probabilities of teacher forcing on given tokens, [B, W, T, N]."""
  beams, length = tokens_BWT.shape[1:]
  repeated = []
  for source in sources:
    repeated += [source] * beams
  rows = teacher_forced_inputs(repeated, tokens_BWT.reshape(-1, length))
  log_probs = np.asarray(subject.forward(*rows))
  return log_probs.reshape(*tokens_BWT.shape, N)


def beam_of_one_is_greedy(subject: ModelUnderTest):
  """Checks that beam search with one beam returns the tokens of greedy search."""
  greedy = dataclasses.replace(_SEARCH, beam_size=1)
  actual = _search(subject, dataclasses.replace(greedy, search=f'{__name__}:beam'))
  expected = _search(subject, greedy)
  require(
    np.array_equal(actual.tokens, expected.tokens),
    'beam search with beam_size=1 and greedy search return different translations; a decoding '
    'step must depend only on its arguments, and leave them unchanged',
  )


def search_scores_equal_teacher_forcing(subject: ModelUnderTest):
  """Checks that the log-probabilities of hypotheses agree with teacher forcing."""
  for beams in (1, W):
    hypotheses = _search(subject, dataclasses.replace(_SEARCH, beam_size=beams))
    tokens_BWT = np.asarray(hypotheses.tokens)
    previous_BWT = np.roll(tokens_BWT, 1, axis=-1)
    previous_BWT[..., 0] = BOS_ID
    log_probs_BWTN = _forced(subject, _sources(), previous_BWT)
    lengths_BW = np.asarray(hypotheses.lengths)
    expected_BW = _totals(log_probs_BWTN, tokens_BWT, lengths_BW)
    real_BW = lengths_BW > 0
    actual_BW = np.asarray(hypotheses.log_probs)
    require(
      subject.is_close(actual_BW[real_BW], expected_BW[real_BW]),
      f"with beam_size={beams}, the search's log-probabilities differ from teacher forcing on the "
      f'same translations, so it would rank hypotheses wrongly; the decoding state is probably '
      f'not reordered with its hypothesis',
    )


def _totals(log_probs_BWTN, tokens_BWT, lengths_BW) -> np.ndarray:
  """Returns the log-probability of each hypothesis, without padding, [B, W]."""
  token_BWT1 = np.take_along_axis(log_probs_BWTN, tokens_BWT[..., None], axis=-1)
  places_T = np.arange(tokens_BWT.shape[-1])
  counted_BWT = places_T < lengths_BW[..., None]
  return np.sum(token_BWT1[..., 0], axis=-1, where=counted_BWT)


def beam(step, cache, limits_B, options, beams, nbest) -> Search:
  """Returns a beam search, even for one beam, where greedy search is the default."""
  return beam_search(step, cache, limits_B, options, beam_size=beams, nbest=nbest)


def _sources():
  """Returns sources with EOS; one has the maximum length of the batch."""
  return [
    np.append(random_pair(length, 1, length)[0], EOS_ID) for length in (4, S - 1, 10)
  ]


def _search(subject, config: DecodeOptions) -> Hypotheses:
  """Returns the hypotheses of a search for B sources of different lengths."""
  nbest = dataclasses.replace(config, nbest=config.beam_size)
  search = DecoderSearch([subject.model], nbest)
  source_BS = padded(_sources(), S, B)
  limits_B = np.full(B, T, np.int32)

  @jax.jit
  def run(params, source_BS, limits_B):
    states, sources = search.start([params], source_BS)
    return run_search(
      search.build_search([params], SearchInputs(sources, limits_B), states, T)
    )

  hypotheses = run(subject.params, source_BS, limits_B)
  return jax.device_get(hypotheses)
