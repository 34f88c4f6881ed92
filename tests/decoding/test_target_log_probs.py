"""Log-probabilities of given translations match the search; ensembles average their models."""

import dataclasses
import logging
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.toy_translation import (
  DECODE,
  ROUNDING,
  make_model,
  make_params,
  make_translator,
  make_vocabulary,
  sentences,
  whole_search,
)
from transformer.data.batch import EOS_ID, PAD_ID
from transformer.decoding.target_log_probs import score_tokens, token_log_probs
from transformer.model.transformer import init_params

VOCABULARY = make_vocabulary()
MODEL = make_model(VOCABULARY)


@pytest.fixture(scope='module')
def params():
  return make_params(MODEL)


def total(pieces):
  """Returns the log-probability of a target."""
  return math.fsum(score for _, score in pieces)


def scored(params, sources, targets, most=(249, 256)):
  config = types.SimpleNamespace(
    data=types.SimpleNamespace(max_length=most[0]),
    decode=dataclasses.replace(
      DECODE, max_extra_length=most[1] - most[0], batch_size=3
    ),
  )
  return token_log_probs(
    [
      types.SimpleNamespace(
        model=MODEL, params=own, vocabulary=VOCABULARY, config=config
      )
      for own in params
    ],
    sources,
    targets,
  )


@pytest.mark.long(but=('3-False',))
@pytest.mark.parametrize(('beams', 'sample'), [(1, False), (3, False), (3, True)])
def test_log_probs_of_a_cached_search_match_teacher_forcing(params, beams, sample):
  config = dataclasses.replace(
    DECODE, beam_size=beams, alpha=0.9, sample=sample, temperature=0.7, top_p=0.95
  )
  rng = np.random.default_rng(0)
  lengths = np.array([3, 11])
  source = np.where(
    np.arange(11) < lengths[:, None], rng.integers(4, 290, (2, 11)), PAD_ID
  )
  source[np.arange(2), lengths - 1] = EOS_ID
  keys = jax.random.key_data(
    jax.random.split(jax.random.key(0, impl='threefry2x32'), 2)
  )
  best = jax.device_get(whole_search(MODEL, config)(params, source, lengths + 7, keys))
  for beam in range(beams):
    length = best.lengths[:, beam]
    assert np.all((length > 0) & (length <= lengths + 7))
    target = np.where(
      np.arange(best.tokens.shape[-1]) < length[:, None], best.tokens[:, beam], PAD_ID
    )
    log_probs = np.sum(score_tokens((MODEL,), [params], source, target), axis=1)
    np.testing.assert_allclose(
      best.log_probs[:, beam], log_probs, rtol=0, atol=ROUNDING
    )
    np.testing.assert_allclose(
      best.scores[:, beam], log_probs / ((5 + length) / 6) ** 0.9, rtol=0, atol=ROUNDING
    )
  assert len(set(best.log_probs.ravel().tolist())) == 2 * beams


def test_a_pair_is_scored_the_same_in_any_batch(params):
  sources, targets = (
    [line[:19] for line in sentences(7, seed=seed)] for seed in (2, 3)
  )
  together = scored([params], sources, targets)
  (alone,) = scored([params], sources[4:5], targets[4:5])
  assert len(alone) == len(together[4])
  assert total(alone) == pytest.approx(total(together[4]), abs=ROUNDING)
  for target, line in zip(targets, together, strict=True):
    pieces, scores = zip(*line, strict=True)
    assert [*pieces] == [
      VOCABULARY.piece(i) for i in [*VOCABULARY.encode(target), EOS_ID]
    ]
    assert max(scores) < 0


@pytest.mark.long
def test_an_ensemble_averages_probabilities(params):
  other = jax.tree.map(
    lambda leaf: 2.0 * leaf, jax.jit(lambda: init_params(MODEL, 6))()
  )
  # One token: the mean of the models. Longer translations: the product of means, not of logs.
  sources, targets = sentences(3), ['', '', '']
  one, two, both = (
    scored(members, sources, targets)
    for members in ([params], [other], [params, other])
  )
  for first, second, mean in zip(one, two, both, strict=True):
    assert total(first) != total(second) and len(mean) == 1
    assert total(mean) == pytest.approx(
      math.log((math.exp(total(first)) + math.exp(total(second))) / 2), abs=ROUNDING
    )
  config, lines = dataclasses.replace(DECODE, alpha=0.0), sentences(5)
  translate = make_translator([MODEL] * 2, VOCABULARY, config)
  answers, swapped, twice = (
    [answer.text for answer in translate(pair, lines)]
    for pair in ((params, other), (other, params), (params, params))
  )
  alone = [
    [answer.text for answer in make_translator(MODEL, VOCABULARY, config)(own, lines)]
    for own in (params, other)
  ]
  assert answers == swapped and answers not in alone and twice == alone[0]


def test_a_score_multiplies_mean_probabilities_up_to_eos():
  class Distributions:
    """A model whose parameters are the distributions at all positions."""

    def apply(self, variables, *_):
      return jnp.log(variables['params']), jnp.eye(7)

  model = Distributions()
  target = np.array([[5, 6, EOS_ID, PAD_ID], [4, EOS_ID, PAD_ID, PAD_ID]])
  both = (
    np.random.default_rng(0)
    .dirichlet(np.ones(7), (2, *target.shape))
    .astype(np.float32)
  )
  mean = np.log(both.mean(axis=0))
  wanted = [
    [
      mean[row, place, target[row, place]] if place < length else 0
      for place in range(4)
    ]
    for row, length in enumerate((3, 2))
  ]
  by_token = score_tokens((model, model), both, target, target)
  np.testing.assert_allclose(by_token, wanted, rtol=1e-5)


def test_lines_that_are_too_long_are_counted_and_the_rest_is_scored(params, caplog):
  long = 'zz ' * 20
  sources, targets = (
    ['a', 'the cat', 'a', *[long] * 7],
    ['a', long, 'zz ' * 3, *'a' * 7],
  )
  tokens = [len(VOCABULARY.encode(line)) + 1 for line in targets]
  with caplog.at_level(logging.WARNING):
    scores = scored([params], sources, targets, (7, tokens[2]))
  assert [len(pieces) for pieces in scores] == [tokens[0], 0, tokens[2], *[0] * 7]
  (alone,) = scored([params], sources[2:3], targets[2:3], (64, 65))
  assert total(scores[2]) == pytest.approx(total(alone), abs=ROUNDING)
  assert '8 of 10 pairs are too long to score' in caplog.text
