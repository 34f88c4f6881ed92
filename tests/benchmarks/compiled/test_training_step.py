"""The report of a compiled training step names its devices."""

import pytest

from benchmarks.compiled import training_step


@pytest.mark.parametrize(
  ('chips', 'wanted'), [(1, 'x, 1 chip: 3,000 rows'), (2, 'x, 2 chips: 3,000 rows')]
)
def test_the_number_of_chips_is_in_the_first_line(chips, wanted):
  facts = {'rows': 3000, 'max_length': 5, 'dtype': 'float32', 'commit': 'abc'}
  line = training_step.describe({**facts, 'chips': chips}, 'x')
  assert line.startswith(wanted)
