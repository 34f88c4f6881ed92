"""Results are held against each other only with the same decoding."""

import dataclasses

import pytest

from transformer.decoding.config import Decoding
from transformer.errors import UserError
from transformer.evaluation.results import Result
from transformer.tools.compare import result_choice


def result(*steps, others=(), more=None, **decode):
  return Result(
    None,
    {
      'steps': steps,
      'ensemble': [*others],
      'ensemble_steps': [[7] for _ in others],
      'decode': dataclasses.asdict(Decoding(**decode)),
      'seed': 3,
      'more': more or {},
    },
  )


def test_the_tokenizer_of_bleu_is_compared_by_itself():
  # A flag or a config may have given it.
  result_choice.check_decoded_alike('ab', [result(9), result(9, more={'bleu': '13a'})])


def test_a_setting_that_only_one_of_two_results_has_is_named_for_both():
  with pytest.raises(UserError, match='a has avoid=none, b has avoid=4fb1;'):
    result_choice.check_decoded_alike(
      'ab', [result(80), result(80, more={'avoid': '4fb1'})]
    )
