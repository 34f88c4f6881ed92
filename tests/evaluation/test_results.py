"""Names keep apart results that differ, and no other run or text takes the place of a result."""

import pytest

from transformer.errors import UserError
from transformer.evaluation import results
from transformer.inference.config import DecodeConfig


@pytest.mark.parametrize(('part', 'found'), [
    ('step8', []), ('step80', [0]), ('beam1', []), ('beam12', [1]), ('alpha0', []),
    ('alpha0.6', [0, 1]), ('alpha0.65', [2]), ('ensemble2', [2]), ('am4.', [0, 2]),
    ('', [0, 1, 2, 3]), ('beam', [0, 1, 2]), ('avoid', [3]), ('ensemble', [2, 3]),
    ('ensemble3', [3]), ('mbr', [3]), ('average5', [3]), ('average', [3])])
def test_a_number_in_a_name_is_never_a_part_of_a_longer_one(part, found):
  names = ['step80.beam4.alpha0.6', 'step800.beam12.alpha0.6',
           'step9.ensemble2.4fb1.beam4.alpha0.65',
           'step7.average5.ensemble3.12345678.samples8.alpha1.avoid4fb1aaaa.mbrBLEU.32']
  given = [results.Result('run', name, None, {}) for name in names]
  assert results.matching(given, part) == [given[number] for number in found]


def test_a_decoding_is_also_found_without_the_average_before_it():
  given = [results.Result('run', name, None, {}) for name in (
      'step600.average5.beam4.alpha0.6', 'step600.beam4.alpha0.6', 'step800.beam4.alpha0.6')]
  assert results.matching(given, 'beam4.alpha0.6') == given[1:]
  assert results.matching(given, 'average5.beam4.alpha0.6') == given[:1]


def test_ensembles_of_other_checkpoints_have_results_of_their_own():
  names = {results.Place(None, 'test', results.describe([5], results.Decoding(
      DecodeConfig(), 0, [results.Member('b', steps)]))).stem for steps in ([5], [4, 5], [6])}
  assert len(names) == 3 and all(name.startswith('test.step5.ensemble2.') for name in names)


@pytest.mark.parametrize(('run', 'digest', 'problem'), [
    ('b', 'text', 'the result of another run'), ('a', 'other', 'the result of another text')])
def test_a_result_that_came_meanwhile_is_not_replaced(tmp_path, run, digest, problem):
  place = results.Place(tmp_path / 'results', 'test', {'step': '5'})
  place.write(tmp_path / 'a', 'text', {'score': 1}, [{'score': 2}])
  before = {path: path.read_bytes() for path in place.folder.iterdir()}
  assert len(before) == 2
  for sentences in ([{'score': 3}], None):
    with pytest.raises(UserError, match=problem):
      place.write(tmp_path / run, digest, {'score': 3}, sentences)
  assert {path: path.read_bytes() for path in place.folder.iterdir()} == before
  place.write(tmp_path / 'a', 'text', {'score': 4}, [{'score': 5}])
  assert all(path.read_bytes() != content for path, content in before.items())
