"""Links follow the attention between words, however words are cut into tokens."""

import numpy as np
import pytest

from transformer.tools.align.word_alignment import link_words


def one_token_a_word(words):
  return np.eye(words, dtype=bool)


def parts(*words):
  """Membership of tokens, given the number of each token's word; None is no word."""
  count = 1 + max(word for word in words if word is not None)
  return np.array([[word == each for each in range(count)] for word in words])


BOTH = np.array([[True, True], [False, True]])


@pytest.mark.parametrize(('weights', 'in_target', 'in_source', 'links'), [
    ([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]], one_token_a_word(2), one_token_a_word(3),
     [(0, 1), (1, 0)]),
    # A word attends by the sum of its tokens, and a token of several words counts for each.
    ([[0.5, 0.0, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.3, 0.2]], parts(0, 0, 1),
     parts(0, 0, 1, 1), [(0, 1), (1, 0)]),
    ([[0.6, 0.4]], one_token_a_word(1), BOTH, [(1, 0)]),
    ([[0.6], [0.4]], BOTH, one_token_a_word(1), [(0, 0), (0, 1)]),
    # Tokens of no word, such as the end token of both sides, count for nothing.
    ([[0.1, 0.2, 0.7], [0.0, 0.0, 1.0], [0.9, 0.1, 0.0]], parts(0, 1, None), parts(0, 1, None),
     [(1, 0)]),
    # Of equal words the first is linked, and without words nothing.
    (np.full((2, 3), 0.25), one_token_a_word(2), one_token_a_word(3), [(0, 0), (0, 1)]),
    (np.ones((2, 2)), np.zeros((2, 0), bool), one_token_a_word(2), []),
    (np.ones((2, 2)), one_token_a_word(2), np.zeros((2, 0), bool), [])])
def test_each_target_word_is_linked_to_the_source_word_that_it_attends_to(
    weights, in_target, in_source, links):
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
