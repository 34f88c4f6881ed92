"""The short form of `long_run.py`, and a check that growth is detected."""

import pytest

from tests.faults.long_run import Look, faults, watch

STEPS = 600


@pytest.mark.long
def test_the_resources_of_a_run_do_not_grow(tmp_path):
  looks = watch(tmp_path, STEPS)
  assert looks[-1].step > 0.9 * STEPS
  assert not faults(looks, STEPS)


@pytest.mark.parametrize(('grown', 'fault'), [
    ({'resident': 2.0e6}, 'resident grew'), ({'handles': 1.0}, 'handles grew'),
    ({'checkpoints': 0.1}, 'checkpoints lay on disk'), ({'metrics': -1.0}, 'metrics.jsonl shrank')])
def test_growth_is_detected(grown, fault):
  flat = [Look(step, 400_000_000, 12, 3, 1000 + step) for step in range(0, STEPS + 1, 10)]
  assert not faults(flat, STEPS)
  (what, by), = grown.items()
  growing = [look._replace(**{what: int(getattr(flat[0], what) + by * look.step)})
             for look in flat]
  assert any(fault in each for each in faults(growing, STEPS))
  assert 'looks' in faults(flat[:5], STEPS)[0]
