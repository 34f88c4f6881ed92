"""A result is chosen by its settings, never by a part of its file's name."""

import dataclasses

import pytest

from transformer.decoding.config import SampleConfig
from transformer.errors import UserError
from transformer.evaluation import result_files, results
from transformer.tools.compare import result_choice


def result(*steps, others=(), more=None, **decode):
  """Returns a result as eval.py names it."""
  members = [results.Member(name, [7]) for name in others]
  decoding = results.Decoding(SampleConfig(**decode), 3, members)
  how = results.describe(steps, decoding) | (more or {})
  return result_files.Result('run', '.'.join(map(''.join, how.items())), None, {
      'steps': steps, 'ensemble': [*others], 'ensemble_steps': [[7] for _ in others],
      'decode': dataclasses.asdict(decoding.config), 'seed': 3, 'more': more or {}})


RESULTS = [
    result(80), result(800, beam_size=12), result(9, others='b', alpha=0.65),
    result(3, 4, 5, 6, 7, others='cd', sample=True, alpha=1.0,
           more={'avoid': '4fb1aaaa', 'mbr': 'chrF2++.32'}),
    result(79, 80), result(80, dtype='bfloat16')]


@pytest.mark.parametrize(('wanted', 'numbers'), [
    ('step8', []), ('step80', [0]), ('step80.average2', [4]), ('average2', [4]), ('average', [4]),
    ('average1', [0, 1]), ('beam1', []), ('beam12', [1]), ('alpha0', []), ('alpha0.60', [0, 1]),
    ('alpha0.65', [2]), ('alpha1', [3]), ('alpha0.6.step80', [0]), ('beam4.alpha0.6', [0]),
    ('ensemble2', [2]), ('ensemble', [2]), ('ensemble1.step80.average2', [4]), ('avoid', [3]),
    ('samples4.seed3', [3]), ('mbrchrF2++', [3]), ('mbrchrF2++.3', []), ('mbrBLEU', []),
    ('dtypebfloat16', [5]), ('dtypetrained.step80', [0]), ('latest', [1]), ('latest.beam4', [0]),
    ('latest.average', [4]), ('latest.ensemble', [2]), ('', [*range(6)]),
    *((each.name, [number]) for number, each in enumerate(RESULTS))])
def test_a_result_has_the_wanted_settings_and_the_fewest_further_ones(wanted, numbers):
  assert result_choice.matching(RESULTS, wanted) == [RESULTS[number] for number in numbers]


@pytest.mark.parametrize('wanted', ['am4', 'beamx', '.', 'step8.', 'size4', 'step1.2.3', 'latest4'])
def test_settings_that_do_not_exist_are_refused(wanted):
  with pytest.raises(UserError, match=r'settings with dots.*the settings are best, latest, step'):
    result_choice.matching(RESULTS, wanted)


def test_results_of_ensembles_from_before_their_steps_were_written_are_found():
  old = result(9, others='b')
  del old.content['ensemble_steps']
  old = old._replace(name='step9.ensemble2.1234abcd.beam4.alpha0.6')
  for wanted in (old.name, 'ensemble2', 'step9.ensemble2.beam4'):
    assert result_choice.matching([RESULTS[0], old], wanted) == [old]


def test_a_setting_that_only_one_of_two_results_has_is_named_for_both():
  with pytest.raises(UserError, match='run has no avoid, run has avoid=4fb1;'):
    result_choice.check_decoded_alike([result(80), result(80, more={'avoid': '4fb1aaaa'})])
