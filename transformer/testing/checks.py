"""All conformance checks by name, fastest first."""

from collections.abc import Callable, Mapping

from transformer.testing import (
  forward_checks,
  numeric_checks,
  search_checks,
  training_checks,
)
from transformer.testing.model_under_test import ModelUnderTest

CHECKS: Mapping[str, Callable[[ModelUnderTest], None]] = {
  check.__name__: check
  for check in (
    forward_checks.future_targets_change_nothing,
    forward_checks.neighbors_change_nothing,
    forward_checks.packing_changes_nothing,
    numeric_checks.eager_jit_and_vmap_agree,
    numeric_checks.dropout_follows_deterministic_and_key,
    numeric_checks.empty_rows_have_finite_gradients,
    numeric_checks.bfloat16_is_near_float32,
    search_checks.cached_decoding_equals_teacher_forcing,
    search_checks.beam_of_one_is_greedy,
    search_checks.search_scores_equal_teacher_forcing,
    training_checks.resumed_training_equals_uninterrupted,
    training_checks.sharded_training_equals_one_device,
  )
}
