"""Names keep apart results that differ, and no other run or text takes the place of a result."""

import pytest

from transformer.decoding.config import SampleConfig
from transformer.errors import UserError
from transformer.evaluation import results


def test_ensembles_of_other_checkpoints_have_results_of_their_own():
  names = {results.Place(None, 'test', results.describe([5], results.Decoding(
      SampleConfig(), 0, [results.Member('b', steps)]))).stem for steps in ([5], [4, 5], [6])}
  assert len(names) == 3 and all(name.startswith('test.step5.ensemble2.') for name in names)


def test_a_name_that_is_too_long_for_a_file_is_refused_before_the_work(tmp_path):
  how = results.describe([5], results.Decoding(SampleConfig(), 0, []))
  longest = results.Place(tmp_path, 'é' * 109, how)
  longest.check_own(tmp_path, 'text')
  longest.write(tmp_path, 'text', {}, [])
  with pytest.raises(UserError, match='1 bytes too long for a file; rename the text'):
    longest._replace(text='é' * 109 + 'x').check_own(tmp_path, 'text')


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
