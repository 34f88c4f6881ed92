"""All conformance checks by name, fastest first."""

from collections.abc import Callable, Mapping

from transformer.testing import (
  forward_checks,
  numeric_checks,
  search_checks,
  training_checks,
)
from transformer.testing.subject import Subject

CHECKS: Mapping[str, Callable[[Subject], None]] = {
  check.__name__: check
  for check in (
    forward_checks.future_targets_change_nothing,
    forward_checks.neighbours_change_nothing,
    forward_checks.packing_changes_nothing,
    numeric_checks.eager_jit_and_vmap_agree,
    numeric_checks.dropout_needs_a_key,
    numeric_checks.empty_rows_have_finite_gradients,
    numeric_checks.bfloat16_is_near_float32,
    search_checks.cached_decoding_is_teacher_forcing,
    search_checks.beam_of_one_is_greedy,
    search_checks.searches_score_by_teacher_forcing,
    training_checks.resumed_training_is_uninterrupted,
    training_checks.devices_make_the_steps_of_one,
  )
}
