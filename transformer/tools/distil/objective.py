"""Word-level distillation (Kim and Rush, 2016, section 3.1), an objective.

  --config.train.objective="('transformer.tools.distil.objective:distillation', 0.5)" \\
      --config.train.objective_runs="('runs/teacher1', 'runs/teacher2')"

The loss combines the cross entropy on the text with the cross entropy against the mean of the
teachers' distributions of each token.
"""

import jax
import jax.numpy as jnp

from transformer.data.vocabulary.vocabularies import RunVocabulary, fingerprints
from transformer.errors import UserError
from transformer.experiment.init_from import load_to_host, weights_provenance
from transformer.ops import linear
from transformer.ops.losses import chunked_loss, token_losses
from transformer.runs.run_directory import read_config
from transformer.training.objective import (
  Objective,
  add_auxiliary_losses,
  forward,
  token_weights,
)


def distillation(config, teacher_weight: float = 0.5, temperature: float = 1.0):
  """Checks the settings and the teachers; returns a function that loads the objective.

  Args:
    config: its `train.objective_runs` are the teachers, of any shape, with the run's vocabulary.
    teacher_weight: λ, the weight of the distillation term. The cross entropy on the text has weight
      1 - λ.
    temperature: τ (Hinton et al., 2015, section 2). It divides the logits of the teachers and of
      the model, and the distillation term is multiplied by τ².
  """
  if not config.train.objective_runs:
    raise UserError(
      'distillation requires teachers; set train.objective_runs to the directories of their runs'
    )
  if not 0.0 < teacher_weight <= 1.0:
    raise UserError(
      f'teacher_weight of distillation must be above 0 and at most 1; got {teacher_weight}'
    )
  if not 0.0 < temperature < float('inf'):
    raise UserError(
      f'temperature of distillation must be above 0 and finite; got {temperature}'
    )
  length = config.data.max_length
  for workdir in config.train.objective_runs:
    model = read_config(workdir).model
    if model.positions == 'learned' and model.max_positions < length:
      raise UserError(
        f'{workdir} of train.objective_runs must have positions for data.max_length={length} '
        f'tokens; it has model.max_positions={model.max_positions}; lower data.max_length, or '
        'remove it'
      )

  def load(vocabulary: RunVocabulary) -> Objective:
    runs = list(map(load_to_host, config.train.objective_runs))
    for run in runs:
      if fingerprints(run.vocabulary) != fingerprints(vocabulary):
        raise UserError(
          f'{run.workdir} of train.objective_runs must have the vocabulary of this run; it has a '
          f'different one; set --config.data.vocabulary={run.workdir}/vocabulary.model, or train '
          f'on the same text with the same config.data'
        )
    models = [run.model for run in runs]
    return Objective(
      distillation_loss(
        models, config.train.label_smoothing, teacher_weight, temperature
      ),
      extra_models=models,
      frozen=tuple(run.params for run in runs),
      provenance=[weights_provenance(run) for run in runs],
    )

  return load


def distillation_loss(
  models, smoothing: float, teacher_weight: float, temperature: float
):
  """Returns the loss of `Objective`; its frozen arrays are the parameters of each teacher."""
  function = token_loss(smoothing, teacher_weight, temperature)

  def loss(model, params, batch, dropout_key=None, *, frozen=(), num_row_shards=1):
    teacher_outputs = []
    teacher_projections = []
    for teacher, teacher_params in zip(models, frozen, strict=True):
      # Teachers have no dropout.
      x_BTD, output_ND, _ = forward(teacher, teacher_params, batch)
      teacher_outputs.append(x_BTD)
      teacher_projections.append(output_ND)
    x_BTD, output_ND, aux_losses = forward(model, params, batch, dropout_key)
    by_position = (batch.target_tokens, teacher_outputs)
    sums = chunked_loss(
      function,
      x_BTD,
      output_ND,
      token_weights(batch),
      by_position,
      teacher_projections,
      num_row_shards=num_row_shards,
    )
    return add_auxiliary_losses(sums, aux_losses)

  return loss


def token_loss(smoothing: float, teacher_weight: float, temperature: float):
  """Returns a loss for `chunked_loss`: (1 - λ) · text loss + λ · τ² · cross entropy to teachers.

  `by_position` are the targets, and the decoder's output [B, T, D'] of each teacher;
  `shared_arrays` are the teachers' output projections [N, D'].
  """

  def function(logits, by_position, teacher_projections):
    targets, teacher_outputs = by_position
    loss, nll = token_losses(logits, targets, smoothing)
    log_probs = jax.nn.log_softmax(logits / temperature)
    teacher_mean = 0.0
    for x, output_ND in zip(teacher_outputs, teacher_projections, strict=True):
      teacher_mean += jax.nn.softmax(linear.logits(x, output_ND) / temperature)
    teacher_mean /= len(teacher_projections)
    distance = -(temperature**2) * jnp.sum(teacher_mean * log_probs, axis=-1)
    return (1.0 - teacher_weight) * loss + teacher_weight * distance, nll

  return function
