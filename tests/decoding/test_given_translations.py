"""A given translation is as likely as its search says; several models are their mean."""

import dataclasses
import logging
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.decoding.test_translator import (  # noqa: F401
  DECODE,
  MAX_LENGTH,
  model,
  params,
  sentences,
  vocabulary,
)
from transformer.data.batch import EOS_ID, PAD_ID
from transformer.decoding.batch_search import BatchSearch
from transformer.decoding.given_translations import make_scorer, score_pairs
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.training.step import init_params


@pytest.fixture(scope='module')
def other(model):  # noqa: F811
  """Other parameters, with other opinions."""
  return jax.tree.map(lambda leaf: 2.0 * leaf, jax.jit(lambda: init_params(model, 6))())


def translated(model, vocabulary, params, lines, **changes):  # noqa: F811
  nbest = changes.pop('nbest', 1)
  config = dataclasses.replace(DECODE, alpha=0.0, **changes)
  return Translator(model, vocabulary, config, MAX_LENGTH, nbest=nbest)(params, lines)


@pytest.mark.long
def test_what_a_search_found_is_as_likely_as_it_says(model, params):  # noqa: F811
  rng = np.random.default_rng(0)
  lengths = np.array([3, 11, 7])
  source = np.where(np.arange(11) < lengths[:, None], rng.integers(4, 290, (3, 11)), PAD_ID)
  source[np.arange(3), lengths - 1] = EOS_ID
  config = dataclasses.replace(DECODE, beam_size=4, alpha=0.0)
  found = jax.device_get(jax.jit(BatchSearch(model, config))(params, source, lengths + 7))
  scorer = jax.jit(make_scorer([model]))
  for beam in range(4):
    target = np.where(np.arange(found.tokens.shape[-1]) < found.lengths[:, beam, None],
                      found.tokens[:, beam], PAD_ID)
    np.testing.assert_allclose(scorer((params,), source, target), found.log_probs[:, beam],
                               rtol=1e-5)
  assert len(set(found.log_probs.ravel().tolist())) == 12


def test_a_pair_is_scored_without_regard_to_its_company(model, vocabulary, params):  # noqa: F811
  sources, targets = sentences(7, seed=2), sentences(7, seed=3)
  most = 256, 256
  together = score_pairs([model], [params], vocabulary, sources, targets, most, batch_size=3)
  for source, target, likelihood in zip(sources, targets, together, strict=True):
    alone, = score_pairs([model], [params], vocabulary, [source], [target], most, batch_size=3)
    assert alone.tokens == likelihood.tokens
    assert alone.log_prob == pytest.approx(likelihood.log_prob, rel=1e-5)
  assert all(each.log_prob < 0 for each in together)
  by_token = score_pairs([model], [params], vocabulary, sources, targets, most, 3, by_token=True)
  for target, whole, parts in zip(targets, together, by_token, strict=True):
    pieces, scores = zip(*parts.pieces, strict=True)
    assert [*pieces] == [vocabulary.piece(i) for i in [*vocabulary.encode(target), EOS_ID]]
    assert parts.log_prob == math.fsum(scores) == pytest.approx(whole.log_prob, rel=1e-5)
    assert parts.tokens == whole.tokens and max(scores) < 0 and not whole.pieces


@pytest.mark.long
def test_an_ensemble_of_one_model_twice_is_that_model(model, vocabulary, params):  # noqa: F811
  lines = sentences(5)
  once = translated(model, vocabulary, params, lines)
  twice = translated([model, model], vocabulary, [params, params], lines)
  assert [each.text for each in twice] == [each.text for each in once]
  np.testing.assert_allclose([each.score for each in twice], [each.score for each in once],
                             rtol=1e-5)


@pytest.mark.long
def test_an_ensemble_averages_probabilities(model, vocabulary, params, other):  # noqa: F811
  # Of one token they are those of each; longer ones multiply means, not their logarithms.
  sources, targets = sentences(3), ['', '', '']
  most = 64, 64
  one, two, both = (score_pairs([model] * len(each), each, vocabulary, sources, targets, most, 3)
                    for each in ([params], [other], [params, other]))
  for first, second, mean in zip(one, two, both, strict=True):
    assert first.log_prob != second.log_prob and mean.tokens == 1
    assert mean.log_prob == pytest.approx(
        math.log((math.exp(first.log_prob) + math.exp(second.log_prob)) / 2), rel=1e-4)
  answers = translated([model, model], vocabulary, [params, other], sentences(5))
  swapped = translated([model, model], vocabulary, [other, params], sentences(5))
  assert [each.text for each in answers] == [each.text for each in swapped]
  alone = [translated(model, vocabulary, each, sentences(5)) for each in (params, other)]
  assert all([each.text for each in answers] != [each.text for each in one] for one in alone)


def test_a_score_multiplies_mean_probabilities_up_to_the_end_token():
  # A model whose parameters are the distributions at all positions.
  model = types.SimpleNamespace(  # noqa: F811
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
def test_n_best_are_distinct_and_in_order_and_the_best_comes_first(model, vocabulary, params):  # noqa: F811
  lines = sentences(4)
  best = translated(model, vocabulary, params, lines)
  found = translated(model, vocabulary, params, lines, nbest=3)
  for first, answer in zip(best, found, strict=True):
    assert answer[:3] == first[:3] and answer.nbest[0] == first.nbest[0]
    scores = [score for _, score in answer.nbest]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
  assert sum(len({text for text, _ in each.nbest}) for each in found) > 8


@pytest.mark.parametrize('nbest', [0, 4])
def test_more_than_there_are_beams_is_refused(model, vocabulary, nbest):  # noqa: F811
  with pytest.raises(UserError, match=f'at most decode.beam_size=3 translations; got {nbest}'):
    Translator(model, vocabulary, DECODE, MAX_LENGTH, nbest=nbest)


def test_a_line_that_is_too_long_is_named_and_the_rest_is_scored(
    model, vocabulary, params, caplog):  # noqa: F811
  sources, targets = ['a', 'the cat', 'a', 'zz ' * 20], ['a', 'zz ' * 20, 'zz ' * 3, 'a']
  tokens = [len(vocabulary.encode(line)) + 1 for line in targets]
  with caplog.at_level(logging.WARNING):
    found = score_pairs([model], [params], vocabulary, sources, targets, (7, tokens[2]), 2)
  assert [each.tokens for each in found] == tokens
  assert [each.log_prob is None for each in found] == [False, True, False, True]
  alone, = score_pairs([model], [params], vocabulary, sources[2:3], targets[2:3], (64, 64), 2)
  assert found[2].log_prob == pytest.approx(alone.log_prob, rel=1e-5)  # As long as it may be.
  for side, line in (('reference', 2), ('source', 4)):
    assert f'1 lines of the {side} have more than' in caplog.text
    assert f'get nan: line {line} (62 tokens)' in caplog.text
