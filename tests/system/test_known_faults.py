"""A backend that computes a known case wrongly is refused."""

import jax
import pytest

from tests.tiny_training import Settings
from transformer.errors import UserError
from transformer.experiment import wiring
from transformer.runs.loading import load_run
from transformer.system import known_faults
from transformer.system.known_faults import CASES, Case, check_backend


@pytest.fixture
def wrong(monkeypatch):
  """Gives this backend a fault."""
  case = Case('the/issue#1', jax.default_backend(), lambda: 41.0, 42.0, 'pip install better')
  monkeypatch.setattr(known_faults, 'CASES', (*CASES, case))


def test_this_backend_computes_every_known_case():
  for case in CASES:
    assert case.compute() == case.answer
  check_backend()


def test_a_wrong_backend_is_refused_in_a_line_that_says_what_to_install(wrong):
  with pytest.raises(UserError) as refusal:
    check_backend()
  message = str(refusal.value)
  assert 'the/issue#1 must give 42 on a cpu, and gives 41' in message
  assert message.endswith('pip install better') and '\n' not in message


@pytest.mark.parametrize('error', [AssertionError(), RuntimeError("Unknown backend\n'x'")])
def test_a_platform_that_is_not_there_is_one_line(monkeypatch, error):
  def fail():
    raise error
  monkeypatch.setattr(jax, 'default_backend', fail)
  monkeypatch.setenv('JAX_PLATFORMS', 'cuda')
  with pytest.raises(UserError, match='JAX cannot use JAX_PLATFORMS=cuda: ') as refusal:
    check_backend()
  assert '\n' not in str(refusal.value)
  monkeypatch.delenv('JAX_PLATFORMS')
  with pytest.raises(type(error)):
    check_backend()


def test_a_case_of_another_platform_is_not_run(monkeypatch):
  case = Case('the/issue#1', 'elsewhere', pytest.fail, 42.0, '')
  monkeypatch.setattr(known_faults, 'CASES', (case,))
  check_backend()


def test_a_wrong_backend_neither_trains_nor_leaves_anything(wrong, tmp_path):
  with pytest.raises(UserError, match='the/issue#1'):
    wiring.train_run(Settings(), tmp_path / 'run')
  assert not list(tmp_path.iterdir())


def test_a_wrong_backend_scores_nothing(wrong, tmp_path):
  with pytest.raises(UserError, match='the/issue#1'):
    load_run(tmp_path)
