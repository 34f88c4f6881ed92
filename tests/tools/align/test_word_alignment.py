"""Links follow the attention between words, in any batch and with any segmentation."""

import random
from pathlib import Path

import jax
import numpy as np
import pytest

from transformer.config import Config
from transformer.data.batch import EOS_ID
from transformer.data.vocabulary.vocabularies import SeparateVocabularies
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.tools.align.links import piece_bytes, token_word_overlap
from transformer.tools.align.word_alignment import align, link_words
from transformer.trained_run import TrainedRun

WORDS = [
  'man',
  'woman',
  'dog',
  'bench',
  'grass',
  'apple',
  'child',
  'rock',
  'shirt',
  'climbing',
]
MOST = 37, 41
SHAPE = ModelConfig(
  num_layers=2, model_dim=28, ff_dim=38, num_heads=2, norm_position='pre'
)


def lines(count, seed):
  rng = random.Random(seed)
  return [' '.join(rng.choices(WORDS, k=rng.randint(3, 7))) for _ in range(count)]


def run_of(model, params, vocabulary, most=MOST):
  """Returns a run with the most tokens of a source and of a target."""
  config = Config.from_dict(
    {
      'data': {'max_length': most[0]},
      'train': {'tokens_per_batch': most[0]},
      'decode': {'max_extra_length': most[1] - most[0]},
    }
  )
  return TrainedRun(Path('nowhere'), config, vocabulary, model, params, [1])


@pytest.fixture(scope='module')
def vocabulary():
  # Some words are one piece, and others are several.
  return Vocabulary.train(lines(400, 1), 310)


@pytest.fixture(scope='module')
def model(vocabulary):
  return Transformer(SHAPE, vocabulary.size)


@pytest.fixture(scope='module')
def params(model):
  # Wider than trained ones, so that the weights differ.
  return jax.tree.map(lambda leaf: 3.0 * leaf, jax.jit(lambda: init_params(model, 5))())


def test_each_target_word_has_one_link_whatever_else_is_aligned(
  vocabulary, model, params
):
  sources, targets = lines(5, 5), lines(5, 6)
  run = run_of(model, params, vocabulary)
  together = align(run, sources, targets)
  for source, target, links in zip(sources, targets, together, strict=True):
    assert align(run, [source], [target]) == [links]
    assert [j for _, j in sorted(links, key=lambda link: link[1])] == [
      *range(len(target.split()))
    ]
    assert all(0 <= i < len(source.split()) for i, _ in links)
  assert len({i for links in together for i, _ in links}) > 3
  assert align(run, ['', ' \t', 'dog', 'dog'], ['dog', 'dog', '', '  ']) == [[]] * 4


@pytest.mark.parametrize('separate', [False, True])
def test_words_beyond_max_length_have_no_links(vocabulary, model, params, separate):
  # With separate vocabularies, the words of targets have more pieces.
  sides = SeparateVocabularies(
    vocabulary, Vocabulary.train(lines(400, 1), 285) if separate else vocabulary
  )
  source, target = ' '.join(WORDS * 3), ' '.join(WORDS * 4)
  (links,) = align(run_of(model, params, sides, (17, 23)), [source], [target])
  kept = [
    len(side.decode(side.encode(line)[: most - 1]).split())
    for side, line, most in zip(sides, (source, target), (17, 23), strict=True)
  ]
  assert len({i for i, _ in links}) > 1 and all(i < kept[0] for i, _ in links)
  assert {j for _, j in links} == {*range(kept[1])} and kept[1] < 40


@pytest.mark.parametrize('layer', [None, 2])
def test_words_are_linked_by_the_mean_of_heads_of_the_layers(
  vocabulary, model, params, layer
):
  run = run_of(model, params, vocabulary)
  for source, target in zip(lines(5, 5), lines(5, 6), strict=True):
    cross_LHTS = run.attention(source, target).cross
    chosen = cross_LHTS if layer is None else cross_LHTS[layer - 1 : layer]
    mean_TS = chosen.mean((0, 1))
    parts_of = [
      token_word_overlap(
        [piece_bytes(vocabulary, id_) for id_ in (*vocabulary.encode(line), EOS_ID)]
      )
      for line in (target, source)
    ]
    assert align(run, [source], [target], layer) == [link_words(mean_TS, *parts_of)]


def one_token_a_word(words):
  return np.eye(words, dtype=bool)


def parts(*words):
  """Membership of tokens, given the number of each token's word; None is no word."""
  count = 1 + max(word for word in words if word is not None)
  return np.array([[word == place for place in range(count)] for word in words])


BOTH = np.array([[True, True], [False, True]])


@pytest.mark.parametrize(
  ('weights', 'in_target', 'in_source', 'links'),
  [
    (
      [[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]],
      one_token_a_word(2),
      one_token_a_word(3),
      [(0, 1), (1, 0)],
    ),
    # A word attends by the sum of its tokens, and a token of several words counts for each.
    (
      [[0.5, 0.0, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.3, 0.2]],
      parts(0, 0, 1),
      parts(0, 0, 1, 1),
      [(0, 1), (1, 0)],
    ),
    ([[0.6, 0.4]], one_token_a_word(1), BOTH, [(1, 0)]),
    ([[0.6], [0.4]], BOTH, one_token_a_word(1), [(0, 0), (0, 1)]),
    # Tokens of no word, such as EOS of both sides, are ignored.
    (
      [[0.1, 0.2, 0.7], [0.0, 0.0, 1.0], [0.9, 0.1, 0.0]],
      parts(0, 1, None),
      parts(0, 1, None),
      [(1, 0)],
    ),
    # Of equal words the first is linked, and without words nothing.
    (np.full((2, 3), 0.25), one_token_a_word(2), one_token_a_word(3), [(0, 0), (0, 1)]),
    (np.ones((2, 2)), np.zeros((2, 0), bool), one_token_a_word(2), []),
    (np.ones((2, 2)), one_token_a_word(2), np.zeros((2, 0), bool), []),
  ],
)
def test_each_target_word_is_linked_to_the_source_word_that_it_attends_to(
  weights, in_target, in_source, links
):
  assert link_words(np.array(weights), in_target, in_source) == links


def test_a_permutation_of_words_permutes_the_links():
  rng = np.random.default_rng(0)
  in_target, in_source = parts(0, 1, 1, 2, 3, None), parts(0, 0, 1, 2, 3, 3, 4, None)
  weights = rng.random((6, 8))
  links = link_words(weights, in_target, in_source)
  for _ in range(5):
    tokens, words = rng.permutation(8), rng.permutation(5)
    moved = link_words(weights[:, tokens], in_target, in_source[tokens][:, words])
    assert sorted((int(words[i]), j) for i, j in moved) == links
    tokens, words = rng.permutation(6), rng.permutation(4)
    moved = link_words(weights[tokens], in_target[tokens][:, words], in_source)
    assert sorted((i, int(words[j])) for i, j in moved) == links
