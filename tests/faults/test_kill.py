"""Three kills, where the script alone makes twenty."""

from tests.faults import kill


def test_a_run_that_is_killed_and_stopped_ends_as_one_that_was_left_alone(tmp_path):
  counts, differences = kill.compare(tmp_path, 3, 0, ['SIGKILL', 'SIGTERM', 'SIGKILL'])
  assert sum(counts.values()) == 3
  assert differences == []
