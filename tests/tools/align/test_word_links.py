"""Links follow the attention between words, however words are cut into tokens."""

import numpy as np

from transformer.tools.align.word_alignment import link_words


def one_token_a_word(words):
  return np.eye(words, dtype=bool)


def parts(*words):
  """Membership of tokens, given the number of each token's word; None is no word."""
  count = 1 + max(word for word in words if word is not None)
  return np.array([[word == each for each in range(count)] for word in words])


def test_each_target_word_is_linked_to_the_source_word_that_it_attends_to():
  weights = np.array([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]])
  assert link_words(weights, one_token_a_word(2), one_token_a_word(3)) == [(0, 1), (1, 0)]


def test_a_word_attends_by_the_sum_of_its_tokens():
  # The source's words are tokens 0, 1 and 2, 3; the target's are tokens 0, 1 and 2.
  weights = np.array([[0.5, 0.0, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.3, 0.2]])
  assert link_words(weights, parts(0, 0, 1), parts(0, 0, 1, 1)) == [(0, 1), (1, 0)]


def test_a_token_of_several_words_counts_for_each():
  both = np.array([[True, True], [False, True]])
  weights = np.array([[0.6, 0.4]])
  assert link_words(weights, one_token_a_word(1), both) == [(1, 0)]
  assert link_words(np.array([[0.6], [0.4]]), both, one_token_a_word(1)) == [(0, 0), (0, 1)]


def test_tokens_of_no_word_count_for_nothing():
  # The last token of both sides is the end token.
  weights = np.array([[0.1, 0.2, 0.7], [0.0, 0.0, 1.0], [0.9, 0.1, 0.0]])
  assert link_words(weights, parts(0, 1, None), parts(0, 1, None)) == [(1, 0)]


def test_of_equal_words_the_first_is_linked_and_without_words_nothing():
  assert link_words(np.full((2, 3), 0.25), one_token_a_word(2), one_token_a_word(3)) == [
      (0, 0), (0, 1)]
  weights, none = np.ones((2, 2)), np.zeros((2, 0), bool)
  assert link_words(weights, none, one_token_a_word(2)) == []
  assert link_words(weights, one_token_a_word(2), none) == []


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
