"""The short form of `damage.py`: damage to any file of a run is detected."""

import pytest

from tests.faults import damage

pytestmark = pytest.mark.long


def test_all_damage_to_a_run_is_detected(tmp_path):
  tally = damage.try_all(tmp_path, positions=1, resumed=1)
  assert tally.unseen == []
  for what in ('checkpoint, flip: scored', 'checkpoint, rename: resumed from the one before',
               'config.json, cut: scored', 'run.json, delete: resumed',
               'vocabulary.model, flip: resumed', 'encoded corpus, cut: made again'):
    assert tally.tried[what], tally.tried
