"""Results are held against each other only with the same decoding."""

import dataclasses
from pathlib import Path

import pytest

from transformer.decoding.config import DecodeOptions
from transformer.errors import UserError
from transformer.evaluation.results import Result
from transformer.tools.compare.scored_runs import ScoredRun, check_same_decoding


def scored(name, *steps, others=(), more=None, **decode):
  result = Result(
    Path('result.json'),
    {
      'steps': steps,
      'ensemble': [*others],
      'ensemble_steps': [[7] for _ in others],
      'decode': dataclasses.asdict(DecodeOptions(**decode)),
      'seed': 3,
      'more': more or {},
    },
  )
  return ScoredRun(name, result, [])


def test_the_tokenizer_of_bleu_is_compared_by_itself():
  # A flag or a config may have given it.
  check_same_decoding(scored('a', 9), scored('b', 9, more={'bleu': '13a'}))


def test_a_setting_that_only_one_of_two_results_has_is_named_for_both():
  with pytest.raises(UserError, match='a has avoid=none, b has avoid=4fb1;'):
    check_same_decoding(scored('a', 80), scored('b', 80, more={'avoid': '4fb1'}))
