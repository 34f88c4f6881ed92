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
  twice,
  twins,
)


def distillation(config, share: float = 0.5, temperature: float = 1.0, r_drop: float = 0.0):
  """Checks the settings and the teachers; returns a function that loads them.

  Args:
    config: its `train.objective_runs` are the teachers, of any shape, with the run's vocabulary.
    share: λ, the share of the loss that compares the model with its teachers. The rest is the
      cross entropy against the text.
    temperature: τ (Hinton et al., 2015, section 2). It divides the logits of the teachers and of
      the model, and λ's term is multiplied by τ².
    r_drop: α of `transformer.tools.r_drop`; 0 is without.
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
  if r_drop:
    from transformer.tools.r_drop import check_alpha  # A tool of its own.

    check_alpha(config.model, r_drop)
  for workdir in config.train.objective_runs:
    model, length = read_settings(workdir).model, config.data.max_length
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
      taught_loss(models, config.train.label_smoothing, share, temperature, r_drop),
      passes=2 if r_drop else 1,
      extra_models=models,
      frozen=tuple(run.params for run in runs),
      sources=[describe_origin(run, run.vocabulary) for run in runs],
    )

  return load


def taught_loss(models, smoothing: float, share: float, temperature: float, r_drop: float):
  """Returns the loss of `Objective`, with the parameters of each teacher as frozen arrays."""

  def loss(model, params, batch, dropout_key=None, *, frozen=(), devices=1):
    # Teachers have no dropout, so twins of R-Drop have the same.
    lessons = [
      forward(teacher, own, batch)[:2] for teacher, own in zip(models, frozen, strict=True)
    ]
    weights_BT, terms = token_weights(batch), []
    if r_drop:
      batch, weights_BT = twins(batch)
      lessons = [(twice(x_BTD), output_ND) for x_BTD, output_ND in lessons]
      from transformer.tools.r_drop import twin_term

      terms = [twin_term(r_drop)]
    x_BTD, output_ND, losses = forward(model, params, batch, dropout_key)
    return add_losses(
      smoothed_cross_entropy(
        x_BTD,
        output_ND,
        batch.target_tokens,
        weights_BT,
        smoothing,
        terms=[teacher_term(lessons, share, temperature), *terms],
        text_share_BT=jnp.full_like(weights_BT, 1.0 - share),
        devices=devices,
      ),
      losses,
    )

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
    wanted = sum(
      jax.nn.softmax(linear.logits(x, output_ND) / temperature)
      for x, output_ND in zip(by_position, whole, strict=True)
    ) / len(whole)
    distance = -(temperature**2) * jnp.sum(wanted * log_probs, axis=-1)
    return share * distance, share * (temperature * (jnp.exp(log_probs) - wanted))

  return Term(function, [x_BTD for x_BTD, _ in lessons], [output_ND for _, output_ND in lessons])
