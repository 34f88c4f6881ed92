"""A result is chosen by its settings, never by a part of its file's name."""

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


RESULTS = [
  result(80),
  result(800, beam_size=12),
  result(9, others='b', alpha=0.65),
  result(
    3,
    4,
    5,
    6,
    7,
    others='cd',
    sample=True,
    alpha=1.0,
    more={'avoid': '4fb1aaaa', 'mbr': 'chrF2++.32'},
  ),
  result(79, 80),
  result(80, dtype='bfloat16'),
]


@pytest.mark.parametrize(
  ('wanted', 'numbers'),
  [
    ('step8', []),
    ('step80', [0]),
    ('step80.average2', [4]),
    ('average2', [4]),
    ('average', [4]),
    ('beam1', []),
    ('beam12', [1]),
    ('alpha0', []),
    ('alpha0.60', [0, 1]),
    ('alpha0.65', [2]),
    ('alpha1', [3]),
    ('alpha0.6.step80', [0]),
    ('ensemble2', [2]),
    ('ensemble', [2]),
    ('avoid', [3]),
    ('samples4.seed3', [3]),
    ('mbrchrF2++', [3]),
    ('mbrchrF2++.3', []),
    ('dtypebfloat16', [5]),
    ('latest', [1]),
    ('latest.beam4', [0]),
    ('latest.average', [4]),
    ('', [*range(6)]),
    *((one.name, [number]) for number, one in enumerate(RESULTS)),
  ],
)
def test_a_result_has_the_wanted_settings_and_the_fewest_further_ones(wanted, numbers):
  assert result_choice.matching(RESULTS, wanted) == [RESULTS[number] for number in numbers]


@pytest.mark.parametrize('wanted', ['am4', 'beamx', '.', 'step1.2.3', 'latest4'])
def test_settings_that_do_not_exist_are_refused(wanted):
  with pytest.raises(UserError, match=r'settings with dots.*the settings are best, latest, step'):
    result_choice.matching(RESULTS, wanted)


def test_the_tokenizer_of_bleu_is_compared_by_itself():
  # A flag or a config may have given it.
  result_choice.check_decoded_alike('ab', [result(9), result(9, more={'bleu': '13a'})])


def test_a_setting_that_only_one_of_two_results_has_is_named_for_both():
  with pytest.raises(UserError, match='a has avoid=none, b has avoid=4fb1;'):
    result_choice.check_decoded_alike('ab', [result(80), result(80, more={'avoid': '4fb1'})])
