"""Evaluates a run's parameters on its validation sets: loss, BLEU and samples."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax

from transformer.data.batch import Batch
from transformer.decoding.config import DecodeOptions
from transformer.decoding.translator import Translator
from transformer.errors import UserError, short_repr, warn_on_error
from transformer.evaluation.metrics import corpus_score
from transformer.evaluation.scores import CustomMetric, custom_scores
from transformer.experiment.meter import perplexity
from transformer.experiment.trackers import Sample
from transformer.system import processes
from transformer.system.progress import log_warning
from transformer.training.config import STANDARD_METRICS

_SAMPLES = 5  # Maximum samples for the trackers, evenly spaced over the split.


class Evaluation(NamedTuple):
  """The results of an evaluation.

  Attributes:
    values: loss in nats per token without label smoothing, perplexity, BLEU and other metrics of
      each set, by their names in `metrics.jsonl`.
    translations: all translations of each set, by its key.
    samples: a few sentences of the first set.
  """

  values: dict[str, float]
  translations: dict[str, list[str]]
  samples: Sequence[Sample] = ()


class ValidationSet(NamedTuple):
  """A validation set.

  Attributes:
    key: prefix of the names of its metrics: `valid`, or `valid/NAME` after the first set.
    batches: its sentence pairs, packed.
    gold: references for custom metrics.
  """

  key: str
  batches: Sequence[Batch]
  sources: Sequence[str]
  references: Sequence[str]
  gold: Sequence[str]


class Validation(NamedTuple):
  """The validation sets of a run, its translator and its metrics.

  Attributes:
    metric: `train.valid_metric`, or None.
    has_chrf: whether chrF2++ is computed.
  """

  sets: Sequence[ValidationSet]
  translate: Translator
  decoding: DecodeOptions
  metric: CustomMetric | None = None
  has_chrf: bool = False

  def evaluate(self, eval_step: Callable, params) -> Evaluation:
    """Returns the evaluation of parameters; omits a custom metric that fails.

    `eval_step`: (params, batch) -> sums.
    """
    values = {}
    translations = {}
    for split in self.sets:
      outputs = self.translate(
        [params], split.sources, self.decoding, description='evaluating: '
      )
      translations[split.key] = [output.text for output in outputs]
      loss = _loss(eval_step, params, split.batches)
      scores = {'loss': loss, 'perplexity': perplexity(loss)}
      if processes.is_first():
        scores |= self._scores(split, translations[split.key])
      values |= {f'{split.key}/{name}': value for name, value in scores.items()}
    # Custom metrics may differ across hosts, but all processes must agree: use process 0's.
    values = processes.broadcast_from_first(lambda: values)
    first = self.sets[0]
    samples = list(
      map(Sample, first.sources, first.references, translations[first.key])
    )
    return Evaluation(values, translations, samples[:: -(-len(samples) // _SAMPLES)])

  def _scores(self, split: ValidationSet, translations: list[str]) -> dict[str, float]:
    references = [split.references]
    tokenize = self.decoding.bleu_tokenize
    scores = {'bleu': corpus_score('BLEU', translations, references, tokenize)}
    if self.has_chrf:
      scores['chrf'] = corpus_score('chrF2++', translations, references)
    if self.metric:
      with warn_on_error(f'{split.key}: a metric is skipped', log_warning):
        scores |= custom_values(self.metric, split.sources, translations, split.gold)
    return scores


def _loss(eval_step: Callable, params, batches: Sequence[Batch]) -> float:
  """Returns the loss over all batches, in nats per token."""
  nll = 0.0
  weight = 0.0
  for batch in batches:
    sums = jax.device_get(eval_step(params, batch))
    nll += float(sums['nll'])
    weight += float(sums['weight'])
  return nll / max(weight, 1.0)


def check_metrics(
  metric: CustomMetric | None,
  best_by: str,
  pairs: Sequence[tuple[str, str]],
  gold: Sequence[str] | None,
):
  """Computes a custom metric once, so that its errors are raised before training.

  Scores a few sources, using the next pair's target as a stand-in for each translation. Raises
  `UserError` if the metric fails, or if no metric has the name in `train.best_by`.
  """
  names = set(STANDARD_METRICS)
  if metric:
    sources, targets = zip(*pairs, strict=True)
    shifted = [*targets[1:], targets[0]]
    names |= custom_values(metric, sources, shifted, gold or targets).keys()
  name = best_by.rpartition('/')[2]
  if name and name not in names:
    raise UserError(
      f'train.best_by must name one of {", ".join(sorted(names))}; got {short_repr(name)}'
    )


def custom_values(
  metric: CustomMetric,
  sources: Sequence[str],
  translations: Sequence[str],
  references: Sequence[str],
) -> dict[str, float]:
  """Returns the scores of a custom metric by name; raises `UserError` if a name is taken."""
  scores = custom_scores(metric, sources, translations, [references])
  for score in scores:
    if score.name in STANDARD_METRICS:
      raise UserError(
        f'the metric {metric.spec} returns {short_repr(score.name)}, already the name of another '
        'validation metric; rename it'
      )
  return {score.name: score.score for score in scores}
