"""Checks of decoding: steps with a cache are teacher forcing, and searches score what they find."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.batch import BOS_ID, EOS_ID
from transformer.decoding.config import DecodeConfig
from transformer.decoding.model_search import ModelSearch
from transformer.decoding.pairs import padded
from transformer.model import search_state
from transformer.ops.beam_search import beam_search
from transformer.ops.linear import log_softmax
from transformer.ops.search import Hypotheses, Search, run_search
from transformer.ops.selection import take
from transformer.testing.rows import FIRST, B, N, S, T, W, begun, forced_rows, pair
from transformer.testing.subject import Subject, require

# The positions that a search has room for, at first and at last.
_ROOMS = 7, T
# The source positions before padding.
_SHORTER = 17
_SEARCH = DecodeConfig(beam_size=W, max_extra_length=T - S)


def cached_decoding_is_teacher_forcing(subject: Subject):
  """Checks `start` and `step` against `__call__`, for any lineage of the hypotheses."""
  steps = _Steps(subject)
  for reorders, sentence in (
    (
      False,
      'a step with a cache gives other probabilities than teacher forcing: translations '
      'would not be those of the model that was trained; compare `start` and `step` with '
      '`__call__`',
    ),
    (
      True,
      'after hypotheses are reordered, steps give other probabilities than teacher forcing: '
      'a beam search would mix up its hypotheses; arrays [B, W, ...] of the state need '
      'by_hypothesis=True',
    ),
  ):
    for got, wanted in steps.compare(reorders):
      require(subject.near(got, wanted), sentence)


class _Steps:
  """The steps of a search whose tokens are random."""

  def __init__(self, subject):
    self._subject = subject
    self._sources = [pair(length, 1, length)[0] for length in (5, _SHORTER, 11)]
    start = functools.partial(subject.model.apply, method='start')
    self._start = jax.jit(start, static_argnums=4)
    self._step = jax.jit(functools.partial(subject.model.apply, method='step'))

  def compare(self, reorders: bool):
    """Yields for each position the log-probabilities by a step and by teacher forcing, [B, W, N].

    Like a search, it drops some hypotheses and continues others more than once, gives the state
    more room on the way, and pads the sources.
    """
    rng = np.random.default_rng(0)
    variables = {'params': self._subject.params}
    given = forced_rows(self._sources, np.zeros((B, T), np.int32))[:3]
    source, state = self._start(variables, *(side[:, :_SHORTER] for side in given), W)
    source = search_state.arrays(search_state.padded(source, S))
    inputs_BWT = np.full((B, W, T), BOS_ID, np.int32)
    for index in range(T):
      if index in (0, _ROOMS[0]):
        state = search_state.grown(state, _ROOMS[bool(index)])
      if index and reorders:
        origin_BW = rng.integers(0, W, (B, W))
        inputs_BWT = np.take_along_axis(inputs_BWT, origin_BW[..., None], axis=1)
        state = _reordered(state, origin_BW)
      if index:
        inputs_BWT[:, :, index] = rng.integers(FIRST, N, (B, W))
      logits_BWN, arrays = self._step(
        variables, inputs_BWT[:, :, index], jnp.int32(index), search_state.arrays(state), source
      )
      require(
        logits_BWN.shape == (B, W, N) and logits_BWN.dtype == jnp.float32,
        f'`step` must return float32 logits [B, W, N] = {B, W, N}; got {logits_BWN.dtype} '
        f'{logits_BWN.shape}: no search could use them',
      )
      state = search_state.with_arrays(state, arrays)
      yield log_softmax(logits_BWN), self._forced(inputs_BWT)[:, :, index]

  def _forced(self, inputs_BWT):
    sources = []
    for source in self._sources:
      sources += [source] * W
    rows = forced_rows(sources, inputs_BWT.reshape(B * W, T))
    return np.asarray(self._subject.forward(*rows)).reshape(B, W, T, N)


def _reordered(state, origin_BW):
  """Returns a search's state after each hypothesis was replaced by the one at its origin."""
  by_hypothesis, others = search_state.split(state)
  moved = jax.tree.map(lambda leaf: take(leaf, jnp.asarray(origin_BW)), by_hypothesis)
  return search_state.joined(moved, others)


def beam_of_one_is_greedy(subject: Subject):
  """Checks that a beam of one finds what greedy search finds."""
  greedy = dataclasses.replace(_SEARCH, beam_size=1)
  beam = dataclasses.replace(greedy, search=f'{__name__}:beam')
  found, wanted = (_search(subject, config) for config in (beam, greedy))
  require(
    np.array_equal(found.tokens, wanted.tokens),
    'a beam of one finds another translation than greedy search: a step must depend on its '
    'arguments alone, and leave what it is given as it was',
  )


def searches_score_by_teacher_forcing(subject: Subject):
  """Checks the log-probabilities that searches report of what they find."""
  for beams in (1, W):
    found = _search(subject, dataclasses.replace(_SEARCH, beam_size=beams))
    tokens_BWT = np.asarray(found.tokens)
    length = tokens_BWT.shape[-1]
    rows_BT = tokens_BWT.reshape(B * beams, length)
    sources = []
    for source in _sources():
      sources += [source] * beams
    log_probs_BTN = np.asarray(subject.forward(*forced_rows(sources, begun(rows_BT))))
    each_BT = np.take_along_axis(log_probs_BTN, rows_BT[..., None], axis=-1)[..., 0]
    lengths_B = np.asarray(found.lengths).reshape(-1)
    counted_BT = np.arange(length) < lengths_B[:, None]
    wanted_B = np.sum(np.where(counted_BT, each_BT, 0.0), axis=1)
    real_B = lengths_B > 0
    got_B = np.asarray(found.log_probs).reshape(-1)
    require(
      subject.near(got_B[real_B], wanted_B[real_B]),
      f'a search with {beams} beams reports other log-probabilities than teacher forcing '
      f'gives its translations: it would choose the wrong ones; the state of a hypothesis '
      f'does not follow it through the search',
    )


def beam(step, cache, limits_B, options, beams, nbest) -> Search:
  """Returns a beam search, also where the default for one beam is greedy search."""
  return beam_search(step, cache, limits_B, options, beam_size=beams, nbest=nbest)


def _sources():
  return [np.append(pair(length, 1, length)[0], EOS_ID) for length in (4, S - 1, 10)]


def _search(subject, config: DecodeConfig) -> Hypotheses:
  """Returns what a search finds for B sources of several lengths."""
  search = ModelSearch([subject.model], config, config.beam_size)
  source_BS = padded(_sources(), S, B)

  @jax.jit
  def run(params, source_BS, limits_B):
    started = search.start([params], source_BS)
    return run_search(search.plan([params], started, limits_B))

  return jax.device_get(run(subject.params, source_BS, np.full(B, T, np.int32)))
