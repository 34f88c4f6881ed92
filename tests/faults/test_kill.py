"""The short form of `kill.py`, with two kills in place of twenty."""

import pytest

from tests.faults import kill

pytestmark = pytest.mark.long


def test_a_run_that_is_killed_and_stopped_ends_like_an_uninterrupted_one(tmp_path):
  counts, differences = kill.compare(tmp_path, 2, 1, ['SIGKILL', 'SIGTERM'])
  assert sum(counts.values()) == 2
  assert differences == []
