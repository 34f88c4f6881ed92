"""What a training run is given, and how it ended."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from transformer.data.batch import Batch
from transformer.experiment.validation import ValidationSet
from transformer.model.transformer import Transformer
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig


class Settings(Protocol):
  """The groups of a config that training reads."""

  optimizer: OptimizerConfig
  train: TrainConfig
  mesh: MeshConfig
  seed: int


class NumberedBatches(Protocol):
  """The batches of a run, by number."""

  def iterate(self, start: int, stop: int) -> Iterator[Batch]:
    """Yields batches `start` … `stop − 1`."""


class Task(NamedTuple):
  """A model, its data and its evaluation.

  Attributes:
    model: the model.
    batches: the batch of every step.
    valid_sets: the validation sets; the first gives samples for people.
    initial_params: () -> the parameters of a run without a checkpoint; None draws them from
      the seed.
    decode: two functions (token ids) -> text, of sources and of targets, for batches that are
      written to disk; None writes only ids.
  """

  model: Transformer
  batches: NumberedBatches
  valid_sets: Sequence[ValidationSet]
  initial_params: Callable[[], Any] | None = None
  decode: tuple[Callable[[Sequence[int]], str], ...] | None = None


class Outcome(NamedTuple):
  """How training ended.

  Attributes:
    step: the number of updates.
    resumed_from: the step of the checkpoint that was resumed, or None.
    best_step: the step of the best evaluation, or None.
    best: that evaluation, or None.
    out_of_patience: whether `train.patience` ended training before `train.steps`.
    worked: whether this process made an update or an evaluation.
  """

  step: int
  resumed_from: int | None
  best_step: int | None
  best: Mapping[str, float] | None
  out_of_patience: bool
  worked: bool
