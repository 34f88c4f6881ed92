"""The facts of a job: model, dataset and work per device, without any computation."""

import dataclasses
import math
import types

import jax

from transformer.config import Config
from transformer.errors import UserError
from transformer.experiment.preparation import PreparedRun
from transformer.model.building import build_model
from transformer.model.flops import train_flops_per_token
from transformer.training.config import MeshConfig
from transformer.training.mesh import check_even_sharding, make_mesh
from transformer.training.training_setup import TrainingSetup, make_training_setup


@dataclasses.dataclass(frozen=True)
class DatasetSize:
  """The sizes of a job's dataset.

  Attributes:
    pairs: training pairs that are kept.
    too_long: training pairs that are dropped because a side exceeds `data.max_length`.
    source_tokens: tokens of the kept pairs, EOS included; also `target_tokens`.
    validation_pairs: pairs of all validation sets.
    steps_per_epoch: training steps that use every row of the packed text once.
  """

  pairs: int
  too_long: int
  source_tokens: int
  target_tokens: int
  validation_pairs: int
  steps_per_epoch: int


@dataclasses.dataclass(frozen=True)
class Job:
  """The known facts of a job before it starts.

  Attributes:
    devices: the number of devices that share a batch.
    shape: rows, source positions and target positions of a batch.
    dataset: sizes of the dataset; None if it was not read.
    parameters: number of parameters; None if the model cannot be built here.
    state_bytes: bytes of parameters, moments and averages, over all devices; or None.
    flops: FLOPs of a training step, without the attention products; or None.
  """

  config: Config
  devices: int
  shape: tuple[int, int, int]
  dataset: DatasetSize | None = None
  parameters: int | None = None
  state_bytes: int | None = None
  flops: float | None = None

  @property
  def rows_per_device(self) -> int:
    """Rows per device in one forward pass."""
    mesh = self.config.mesh
    splits = self.devices // mesh.tensor
    if mesh.tensor == -1:
      splits = mesh.data * mesh.fsdp
    return self.config.rows_per_microbatch // splits

  @property
  def tokens_per_device(self) -> int:
    """Target positions per device in one forward pass."""
    return self.rows_per_device * self.config.data.max_length


def describe(
  config: Config, devices: int | None = None, prepared: PreparedRun | None = None
) -> Job:
  """Returns the facts of a job on `devices`; the default is the minimum for its mesh.

  Without `prepared`, the dataset is unknown, and the vocabulary has the configured size. Raises
  `UserError` if the devices cannot share a batch.
  """
  mesh = config.mesh
  if devices is None:
    # A size of -1 is at least 1.
    devices = math.prod(max(size, 1) for size in (mesh.data, mesh.fsdp, mesh.tensor))
  sentences = config.decode.batch_size
  check_even_sharding(mesh, config.rows_per_microbatch, sentences, devices, processes=1)
  if prepared:
    job = Job(config, devices, prepared.data.batches.shape, _count(prepared))
    return _with_model(job, prepared.setup)
  length = config.data.max_length
  rows = config.train.tokens_per_batch // length
  job = Job(config, devices, (rows, length, length))
  try:
    setup = _setup_without_text(config)
  except UserError:  # A plugin may exist only on other machines.
    return job
  return _with_model(job, setup)


def _setup_without_text(config: Config) -> TrainingSetup:
  """Returns the training step for a vocabulary of the configured size."""
  sizes = config.data.vocabulary_sizes
  target = types.SimpleNamespace(size=sizes.pop('vocabulary'))
  source = types.SimpleNamespace(size=sizes.get('source_vocabulary', target.size))
  vocabulary = types.SimpleNamespace(source=source, target=target)
  mesh = make_mesh(MeshConfig(data=1), config.rows_per_microbatch, jax.devices()[:1])
  return make_training_setup(config, build_model(config.model, vocabulary), mesh)


def _with_model(job: Job, setup: TrainingSetup) -> Job:
  """Adds the facts of a training step to a job."""
  objective = setup.objective
  by_token = train_flops_per_token(
    setup.model, objective.passes, objective.extra_models
  )
  flops = None
  # A custom objective can be built only with the vocabulary.
  if by_token is not None and (job.dataset or not job.config.train.objective):
    rows, source_length, target_length = job.shape
    of_source, of_target = by_token
    flops = rows * (of_source * source_length + of_target * target_length)
  state = jax.tree.leaves(setup.abstract_state)
  return dataclasses.replace(
    job,
    parameters=setup.num_parameters,
    state_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in state),
    flops=flops,
  )


def _count(prepared: PreparedRun) -> DatasetSize:
  """Returns the sizes of a prepared dataset."""
  encoded = prepared.data
  # Augmented batches follow the plan of the original batches.
  plan = getattr(encoded.batches, 'plan', encoded.batches)
  num_pairs = 0
  too_long = 0
  validation_pairs = 0
  for name, counts in encoded.counts.items():
    if name.startswith('train/'):
      num_pairs += counts['kept']
      too_long += counts['dropped: source too long']
      too_long += counts['dropped: target too long']
    else:
      validation_pairs += counts['kept']
  return DatasetSize(
    pairs=num_pairs,
    too_long=too_long,
    source_tokens=int(sum(pairs.source.lengths.sum() for pairs in plan.corpora)),
    target_tokens=int(sum(pairs.target.lengths.sum() for pairs in plan.corpora)),
    validation_pairs=validation_pairs,
    steps_per_epoch=plan.batches_in_epoch,
  )
