"""A run that is killed or stopped ends like an uninterrupted one.

KILLS=20 SIGNALS=KILL pytest -s tests/robustness/test_kill.py kills more often, and prints when.
"""

import os

import pytest

from tests.robustness import kill

pytestmark = pytest.mark.long


def test_a_run_that_is_killed_and_stopped_ends_like_an_uninterrupted_one(
  default_signal_handlers, tmp_path
):
  kills, signals = (
    int(os.environ.get('KILLS', '2')),
    os.environ.get('SIGNALS', 'KILL,TERM'),
  )
  assert (
    kill.compare(
      tmp_path,
      kills,
      int(os.environ.get('SEED', '1')),
      [f'SIG{name}' for name in signals.split(',')],
    )
    == []
  )
