"""Word-level distillation (Kim and Rush, 2016, section 3.1), an objective.

  --config.train.objective="('transformer.tools.distil.objective:distillation', 0.5)" \\
      --config.train.objective_runs="('runs/teacher1', 'runs/teacher2')"

The model learns from the text, and from the mean of the teachers' distributions of each token.
"""

import jax
import jax.numpy as jnp

from transformer.data.vocabulary.vocabularies import RunVocabulary, fingerprints
from transformer.errors import UserError
from transformer.experiment.init_from import describe_origin, load_to_host
from transformer.ops import linear
from transformer.ops.losses import Predictions, Term, smoothed_cross_entropy
from transformer.runs.run_directory import read_settings
from transformer.training.objective import (
  Objective,
  add_losses,
  forward,
  token_weights,
)


def distillation(config, share: float = 0.5, temperature: float = 1.0):
  """Checks the settings and the teachers; returns a function that loads them.

  Args:
    config: its `train.objective_runs` are the teachers, of any shape, with the run's vocabulary.
    share: λ, the share of the loss that compares the model with its teachers. The rest is the
      cross entropy against the text.
    temperature: τ (Hinton et al., 2015, section 2). It divides the logits of the teachers and of
      the model, and λ's term is multiplied by τ².
  """
  if not config.train.objective_runs:
    raise UserError(
      'distillation learns from teachers; name the directories of their runs in '
      'train.objective_runs'
    )
  if not 0.0 < share <= 1.0:
    raise UserError(f'share of distillation must be above 0 and at most 1; got {share}')
  if not 0.0 < temperature < float('inf'):
    raise UserError(f'temperature of distillation must be above 0 and finite; got {temperature}')
  length = config.data.max_length
  for workdir in config.train.objective_runs:
    model = read_settings(workdir).model
    if model.positions == 'learned' and model.max_positions < length:
      raise UserError(
        f'{workdir} of train.objective_runs must have positions for data.max_length='
        f'{length} tokens; it has model.max_positions={model.max_positions}; lower '
        f'data.max_length, or leave it out'
      )

  def load(vocabulary: RunVocabulary) -> Objective:
    runs = list(map(load_to_host, config.train.objective_runs))
    for run in runs:
      if fingerprints(run.vocabulary) != fingerprints(vocabulary):
        raise UserError(
          f'{run.workdir} of train.objective_runs must have the vocabulary of this run; it has '
          f'another; set --config.data.vocabulary={run.workdir}/vocabulary.model, or train on '
          f'the same text with the same config.data'
        )
    models = [run.model for run in runs]
    return Objective(
      taught_loss(models, config.train.label_smoothing, share, temperature),
      extra_models=models,
      frozen=tuple(run.params for run in runs),
      sources=[describe_origin(run, run.vocabulary) for run in runs],
    )

  return load


def taught_loss(models, smoothing: float, share: float, temperature: float):
  """Returns the loss of `Objective`, with the parameters of each teacher as frozen arrays."""

  def loss(model, params, batch, dropout_key=None, *, frozen=(), devices=1):
    lessons = []
    for teacher, its_params in zip(models, frozen, strict=True):
      x_BTD, output_ND, _ = forward(teacher, its_params, batch)  # Teachers have no dropout.
      lessons.append((x_BTD, output_ND))
    weights_BT = token_weights(batch)
    x_BTD, output_ND, losses = forward(model, params, batch, dropout_key)
    taught = smoothed_cross_entropy(
      x_BTD,
      output_ND,
      batch.target_tokens,
      weights_BT,
      smoothing,
      terms=[teacher_term(lessons, share, temperature)],
      text_share_BT=jnp.full_like(weights_BT, 1.0 - share),
      devices=devices,
    )
    return add_losses(taught, losses)

  return loss


def teacher_term(lessons, share: float, temperature: float) -> Term:
  """Returns the term λ · τ² · cross entropy against the mean of the teachers' distributions.

  Args:
    lessons: for each teacher its decoder's output [B, T, D'] and its output projection [N, D'].
    share: λ.
    temperature: τ.
  """

  def function(predictions: Predictions, by_position, whole):
    log_probs = jax.nn.log_softmax(predictions.logits / temperature)
    wanted = 0.0
    for x, output_ND in zip(by_position, whole, strict=True):
      wanted += jax.nn.softmax(linear.logits(x, output_ND) / temperature)
    wanted /= len(whole)
    distance = -(temperature**2) * jnp.sum(wanted * log_probs, axis=-1)
    return share * distance, share * (temperature * (jnp.exp(log_probs) - wanted))

  return Term(function, [x_BTD for x_BTD, _ in lessons], [output_ND for _, output_ND in lessons])
