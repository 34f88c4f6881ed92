"""The cost of a run follows from its updates."""

import pytest

from transformer import files
from transformer.runs.record import record_cost
from transformer.runs.run_directory import FORMAT


@pytest.mark.parametrize(('by_update', 'cost'), [(1e12, {'flops': 2e14}), (None, None)])
def test_the_cost_of_a_run_is_that_of_its_updates_if_it_is_known(tmp_path, caplog, by_update, cost):
  caplog.set_level('INFO')
  files.write_sealed(tmp_path / 'run.json', {'format': FORMAT, 'flops_per_update': by_update})
  record_cost(tmp_path, 200)
  assert files.read_sealed(tmp_path / 'run.json', 'the record').get('cost') == cost
  assert ('trained with 2.00e+14 FLOPs' in caplog.messages) == bool(cost)
