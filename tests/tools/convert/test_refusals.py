"""A model that was changed is exported by no format that does not know the change."""

import dataclasses

import pytest

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.tools.convert import ctranslate2_format, huggingface_format


@dataclasses.dataclass(frozen=True)
class Changed(ModelConfig):
  """The settings of a model with one of the user's own, as before by default."""

  cap: float = 0.0


@pytest.mark.parametrize(
  'check_model', [ctranslate2_format.check_model, huggingface_format.check_model]
)
def test_a_setting_that_a_format_does_not_know_is_refused_where_it_changes_the_model(
  check_model,
):
  check_model(Changed())
  with pytest.raises(
    UserError, match=r'cannot hold model\.cap=5\.0: .* know it; .*safetensors$'
  ):
    check_model(Changed(cap=5.0))
