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
from transformer.ops.losses import chunked_loss, token_losses
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
  function = teaching(smoothing, share, temperature)
  if r_drop:
    from transformer.tools.r_drop import with_divergence

    function = with_divergence(function, r_drop)

  def loss(model, params, batch, dropout_key=None, *, frozen=(), devices=1):
    # Teachers have no dropout, so twins of R-Drop have the same.
    lessons = [
      forward(teacher, own, batch)[:2] for teacher, own in zip(models, frozen, strict=True)
    ]
    weights_BT = token_weights(batch)
    if r_drop:
      batch, weights_BT = twins(batch)
      lessons = [(twice(x_BTD), output_ND) for x_BTD, output_ND in lessons]
    x_BTD, output_ND, losses = forward(model, params, batch, dropout_key)
    by_position = (batch.target_tokens, [x_BTD for x_BTD, _ in lessons])
    outputs = [output_ND for _, output_ND in lessons]
    sums = chunked_loss(
      function, x_BTD, output_ND, weights_BT, by_position, outputs, devices=devices
    )
    return add_losses(sums, losses)

  return loss


def teaching(smoothing: float, share: float, temperature: float):
  """Returns a loss for `chunked_loss`: λ · τ² · cross entropy against the teachers' mean, and text.

  `by_position` is the targets, and for each teacher its decoder's output [B, T, D']; `whole` has
  the teachers' output projections [N, D'].
  """

  def function(logits, by_position, outputs):
    targets, lessons = by_position
    loss, nll = token_losses(logits, targets, smoothing)
    log_probs = jax.nn.log_softmax(logits / temperature)
    wanted = sum(
      jax.nn.softmax(linear.logits(x, output_ND) / temperature)
      for x, output_ND in zip(lessons, outputs, strict=True)
    ) / len(outputs)
    distance = -(temperature**2) * jnp.sum(wanted * log_probs, axis=-1)
    return (1.0 - share) * loss + share * distance, nll

  return function
