"""A given translation is as likely as its search says; several models are their mean."""

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
  MAX_LENGTH,
  make_model,
  make_params,
  make_vocabulary,
  sentences,
  whole_search,
)
from transformer.data.batch import EOS_ID, PAD_ID
from transformer.decoding.likelihoods import make_scorer, score_pairs
from transformer.decoding.translator import Translator
from transformer.training.step import init_params

VOCABULARY = make_vocabulary()
MODEL = make_model(VOCABULARY)


@pytest.fixture(scope='module')
def params():
  return make_params(MODEL)


@pytest.fixture(scope='module')
def other():
  """Other parameters, with other opinions."""
  return jax.tree.map(lambda leaf: 2.0 * leaf, jax.jit(lambda: init_params(MODEL, 6))())


def scored(params, sources, targets, most=(256, 256), **options):
  return score_pairs([MODEL] * len(params), params, VOCABULARY, (sources, targets), most, 3,
                     **options)


def translated(models, params, lines, nbest=1):
  config = dataclasses.replace(DECODE, alpha=0.0)
  return Translator(models, VOCABULARY, config, MAX_LENGTH, nbest=nbest)(params, lines)


@pytest.mark.long
def test_what_a_search_found_is_as_likely_as_it_says(params):
  rng = np.random.default_rng(0)
  lengths = np.array([3, 11, 7])
  source = np.where(np.arange(11) < lengths[:, None], rng.integers(4, 290, (3, 11)), PAD_ID)
  source[np.arange(3), lengths - 1] = EOS_ID
  config = dataclasses.replace(DECODE, beam_size=4, alpha=0.0)
  found = jax.device_get(whole_search(MODEL, config)(params, source, lengths + 7))
  scorer = jax.jit(make_scorer([MODEL]))
  for beam in range(4):
    target = np.where(np.arange(found.tokens.shape[-1]) < found.lengths[:, beam, None],
                      found.tokens[:, beam], PAD_ID)
    np.testing.assert_allclose(scorer((params,), source, target), found.log_probs[:, beam],
                               rtol=1e-5)
  assert len(set(found.log_probs.ravel().tolist())) == 12


def test_a_pair_is_scored_without_regard_to_its_company(params):
  sources, targets = sentences(7, seed=2), sentences(7, seed=3)
  together = scored([params], sources, targets)
  for number in (0, 4):
    alone, = scored([params], sources[number:number + 1], targets[number:number + 1])
    assert alone.tokens == together[number].tokens
    assert alone.log_prob == pytest.approx(together[number].log_prob, rel=1e-5)
  by_token = scored([params], sources, targets, by_token=True)
  for target, whole, parts in zip(targets, together, by_token, strict=True):
    pieces, scores = zip(*parts.pieces, strict=True)
    assert [*pieces] == [VOCABULARY.piece(i) for i in [*VOCABULARY.encode(target), EOS_ID]]
    assert parts.log_prob == math.fsum(scores) == pytest.approx(whole.log_prob, rel=1e-5)
    assert parts.tokens == whole.tokens and max(scores) < 0 and not whole.pieces


@pytest.mark.long
def test_an_ensemble_averages_probabilities(params, other):
  # Of one token they are those of each; longer ones multiply means, not their logarithms.
  sources, targets = sentences(3), ['', '', '']
  one, two, both = (scored(members, sources, targets)
                    for members in ([params], [other], [params, other]))
  for first, second, mean in zip(one, two, both, strict=True):
    assert first.log_prob != second.log_prob and mean.tokens == 1
    assert mean.log_prob == pytest.approx(
        math.log((math.exp(first.log_prob) + math.exp(second.log_prob)) / 2), rel=1e-4)
  lines = sentences(5)
  answers, swapped, twice = ([answer.text for answer in translated([MODEL] * 2, pair, lines)]
                             for pair in ((params, other), (other, params), (params, params)))
  alone = [[answer.text for answer in translated(MODEL, one, lines)] for one in (params, other)]
  assert answers == swapped and answers not in alone and twice == alone[0]


def test_a_score_multiplies_mean_probabilities_up_to_the_end_token():
  # A model whose parameters are the distributions at all positions.
  model = types.SimpleNamespace(
      apply=lambda variables, *_: (jnp.log(variables['params']), jnp.eye(7)))
  target = np.array([[5, 6, EOS_ID, PAD_ID], [4, EOS_ID, PAD_ID, PAD_ID]])
  both = np.random.default_rng(0).dirichlet(np.ones(7), (2, *target.shape)).astype(np.float32)
  found = make_scorer([model, model])(both, target, target)
  mean = np.log(both.mean(axis=0))
  wanted = [[mean[row, place, target[row, place]] if place < length else 0 for place in range(4)]
            for row, length in enumerate((3, 2))]
  np.testing.assert_allclose(found, np.sum(wanted, axis=1), rtol=1e-5)
  by_token = make_scorer([model, model], by_token=True)(both, target, target)
  np.testing.assert_allclose(by_token, wanted, rtol=1e-5)


@pytest.mark.long
def test_n_best_are_distinct_and_in_order_and_the_best_comes_first(params):
  lines = sentences(4)
  best, found = (translated(MODEL, params, lines, nbest) for nbest in (1, 3))
  for first, answer in zip(best, found, strict=True):
    assert answer[:3] == first[:3] and answer.nbest[0] == first.nbest[0]
    scores = [score for _, score in answer.nbest]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
  assert sum(len({text for text, _ in answer.nbest}) for answer in found) > 8


def test_a_line_that_is_too_long_is_named_and_the_rest_is_scored(params, caplog):
  sources, targets = ['a', 'the cat', 'a', 'zz ' * 20], ['a', 'zz ' * 20, 'zz ' * 3, 'a']
  tokens = [len(VOCABULARY.encode(line)) + 1 for line in targets]
  with caplog.at_level(logging.WARNING):
    found = scored([params], sources, targets, (7, tokens[2]))
  assert [pair.tokens for pair in found] == tokens
  assert [pair.log_prob is None for pair in found] == [False, True, False, True]
  alone, = scored([params], sources[2:3], targets[2:3], (64, 64))
  assert found[2].log_prob == pytest.approx(alone.log_prob, rel=1e-5)  # As long as it may be.
  for side, line in (('reference', 2), ('source', 4)):
    assert f'1 lines of the {side} have more than' in caplog.text
    assert f'get nan: line {line} (62 tokens)' in caplog.text
