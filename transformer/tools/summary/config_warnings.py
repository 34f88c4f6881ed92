"""Questionable settings: valid, but rarely intended; each with the usual values.

The limits are wide: no config of this project exceeds one.
tests/tools/summary/test_config_warnings.py has configs from issues of other toolkits that do.
"""

import operator
from collections.abc import Iterator

from transformer import plugins
from transformer.config import Config
from transformer.tools.summary.job import DatasetSize, Job

# The peak learning rate of the paper's base model, 0.0007, times model_dim. Wider models have lower
# rates. The highest rate among this project's configs is 2.5 times as high.
_BASE_RATE = 7e-4 * 512
_HIGH = 4  # Times the usual rate.
_LOW = 1 / 30

# Steps. The shortest warmup among this project's configs is 100 steps, with Muon.
_SHORT_WARMUP = 50
_LONG_WARMUP = 40_000

# Rates of dropout and of label smoothing.
_STRONG = 0.5

# Target tokens in a batch per model dimension, and target tokens per device at a time. With fewer,
# a GPU is not fully used.
_TOKENS_PER_DIM = 4
_TOKENS_PER_DEVICE = 1000

_TOO_LONG = 0.02  # Fraction of the training pairs.
_OCCURRENCES = 30  # Average frequency of a vocabulary item in the training set.

# A token in search costs as much as five tokens in training: on an H100, the base model trains
# 671,539 target tokens per second and searches 124,292, with 64 sentences at a time
# (benchmarks/README.md).
_SEARCH_COST = 5

# Training time that a crash may cost.
_SECONDS_AT_RISK = 4 * 3600

_REGULARIZATION = (
  ('model.dropout', '0.1 to 0.3'),
  ('model.attention_dropout', '0 or 0.1'),
  ('model.activation_dropout', '0 or 0.1'),
  ('train.label_smoothing', '0.1'),
)
# The name of a setting, the warning about its value, and the usual value.
_Warnings = Iterator[tuple[str, str, str]]


def config_warnings(
  job: Job, step_seconds: float | None = None, is_full: bool = False
) -> list[dict[str, str]]:
  """Returns the warnings about a job, each with `setting`, `finding` and `usual`.

  Some need the dataset of the job, others `step_seconds`, the time of a training step. `is_full`
  means that the disk lacks space for the checkpoints.
  """
  config = job.config
  findings = [
    *_rate_warnings(config),
    *_regularization_warnings(config),
    *_batch_warnings(job),
  ]
  findings += _interval_warnings(config, step_seconds)
  if job.dataset:
    findings += _text_warnings(config, job.dataset)
  if is_full:
    findings.append(
      (
        'train.keep',
        'needs more disk space than is free',
        'fewer checkpoints, or a different disk',
      )
    )

  result = []
  for message in config.warnings():
    result.append({'setting': '', 'finding': message, 'usual': ''})
  for setting, finding, usual in findings:
    value = operator.attrgetter(setting)(config)
    separator = '' if finding.startswith(':') else ' '
    message = f'{setting}={value}{separator}{finding}'
    result.append({'setting': setting, 'finding': message, 'usual': usual})
  return result


def peak_rate(config: Config) -> float | None:
  """Returns the peak learning rate; None for a custom schedule."""
  optimizer = config.optimizer
  if plugins.name_of(optimizer.schedule) == 'noam':
    dims = config.model.model_dim * optimizer.warmup_steps
    return optimizer.noam_scale * dims**-0.5
  return optimizer.peak_learning_rate if optimizer.ignored_rate_key else None


def _rate_warnings(config: Config) -> _Warnings:
  steps = config.train.steps
  warmup = config.optimizer.warmup_steps
  is_long = warmup > _LONG_WARMUP or steps / 2 < warmup < steps
  if is_long or warmup < _SHORT_WARMUP:
    yield (
      'optimizer.warmup_steps',
      f'of {steps:,} training steps',
      '4,000 of 100,000 steps; 5 to 25% of a short run',
    )

  peak = peak_rate(config)
  if peak is None:
    return
  width = config.model.model_dim
  usual = _BASE_RATE / width
  # Fine-tuning may use low learning rates.
  is_low = peak < _LOW * usual and not config.train.init_from
  if is_low or peak > _HIGH * usual:
    is_scale = config.optimizer.ignored_rate_key == 'peak_learning_rate'
    yield (
      'optimizer.noam_scale' if is_scale else 'optimizer.peak_learning_rate',
      f'sets a peak learning rate of {peak:.2g}',
      f'about {usual:.2g} at width {width:,}',
    )


def _regularization_warnings(config: Config) -> _Warnings:
  for setting, usual in _REGULARIZATION:
    if operator.attrgetter(setting)(config) >= _STRONG:
      yield (
        setting,
        'is very strong',
        usual,
      )


def _batch_warnings(job: Job) -> _Warnings:
  width = job.config.model.model_dim
  least = _TOKENS_PER_DIM * width
  if job.config.train.tokens_per_batch < least:
    yield (
      'train.tokens_per_batch',
      f'is small for a model of width {width:,}',
      f'25,000 for the base model; {least:,} and more here',
    )

  tokens = job.tokens_per_device
  if tokens < _TOKENS_PER_DEVICE:
    yield (
      'train.tokens_per_batch',
      f'gives each of {job.devices} devices {tokens:,} target tokens at a time',
      '2,000 and more; use fewer devices or larger batches',
    )


def _interval_warnings(config: Config, step_seconds: float | None) -> _Warnings:
  train = config.train
  evaluations = train.steps // train.eval_every
  if train.patience and train.patience >= evaluations:
    yield (
      'train.patience',
      f'never stops a run of {evaluations} evaluations early',
      '5 to 10, and several times as many evaluations',
    )

  at_risk = train.checkpoint_every * (step_seconds or 0)
  if at_risk > _SECONDS_AT_RISK:
    yield (
      'train.checkpoint_every',
      f': {train.checkpoint_every:,} training steps take {at_risk / 3600:,.0f} hours',
      'ten minutes to an hour',
    )


def _text_warnings(config: Config, text: DatasetSize) -> _Warnings:
  too_long = text.too_long / (text.pairs + text.too_long)
  if too_long > _TOO_LONG:
    yield (
      'data.max_length',
      f'drops {too_long:.1%} of the training pairs',
      'less than 1%',
    )

  tokens = text.source_tokens + text.target_tokens
  times = tokens / sum(config.data.vocabulary_sizes.values())
  if times < _OCCURRENCES:
    yield (
      'data.vocabulary_size',
      f'is large: a token occurs {times:.0f} times on average',
      '100 times and more (Gowda and May, 2020)',
    )

  searched = text.validation_pairs * text.target_tokens / text.pairs
  trained = config.train.eval_every * config.train.tokens_per_batch
  if _SEARCH_COST * searched > trained:
    yield (
      'train.eval_every',
      f': evaluating {text.validation_pairs:,} pairs takes longer than the training between '
      'evaluations',
      '2,000 to 3,000 pairs; evaluation at about 10% of training time',
    )
