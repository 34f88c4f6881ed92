"""The short form of `damage.py`: no damage to any file of a run goes unseen."""

import pytest

from tests.faults import damage

pytestmark = pytest.mark.long


def test_no_damage_to_a_run_goes_unseen(tmp_path):
  tally = damage.try_all(tmp_path, positions=1, resumed=1)
  assert tally.unseen == []
  for what in ('checkpoint, flip: scored', 'checkpoint, add: gone on from the one before',
               'config.json, cut: scored', 'run.json, delete: gone on',
               'vocabulary.model, flip: gone on', 'encoded corpus, cut: trained on'):
    assert tally.tried[what], tally.tried
