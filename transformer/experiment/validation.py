"""Evaluation of a run's parameters on its validation sets: loss, BLEU and samples."""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from transformer.config import Config
from transformer.data.batch import Batch
from transformer.data.text.sources import Corpus
from transformer.data.text.text_files import is_blank
from transformer.decoding.config import Decoding
from transformer.decoding.translator import Translator
from transformer.errors import UserError, optional, shown
from transformer.evaluation.metrics import check_tokenizer, corpus_bleu, corpus_chrf
from transformer.evaluation.scores import OwnMetric, load_metric, own_scores
from transformer.experiment.meter import perplexity
from transformer.experiment.reporters import Sample
from transformer.system import processes
from transformer.system.progress import warn
from transformer.training.config import STANDARD_METRICS

_SHOWN = 5  # TensorBoard shows this many sentences, evenly spread over the split.
_TRIED = 5  # Metrics are tried on this many pairs.
# (sources, translations, references, gold) -> scores by name.
Metric = Callable[..., dict[str, float]]


class Evaluation(NamedTuple):
  """An evaluation.

  Attributes:
    values: loss in nats per token without smoothing, its perplexity, BLEU and other metrics of each
      set, by their names in `metrics.jsonl`.
    translations: all of each set, by its key.
    samples: a few sentences of the first set.
  """

  values: dict[str, float]
  translations: dict[str, list[str]]
  samples: Sequence[Sample] = ()


class ValidationSet(NamedTuple):
  """A validation set.

  Attributes:
    key: the beginning of its metrics' names: `valid`, or `valid/NAME` after the first set.
    batches: its pairs, packed; `pairs` are the text.
    gold: what metrics of one's own get in place of the references, if anything.
  """

  key: str
  batches: Sequence[Batch]
  pairs: Sequence[tuple[str, str]]
  gold: Sequence[str] | None = None


def evaluate(
  eval_step: Callable,
  params: Any,
  sets: Sequence[ValidationSet],
  translate: Translator,
  decoding: Decoding,
  metrics: Sequence[Metric] = (),
) -> Evaluation:
  """Evaluates parameters on the validation sets; a metric that fails is left out.

  `eval_step` takes parameters and a batch and returns sums; `metrics` are others than BLEU.
  """
  values = {}
  translations = {}
  for key, batches, pairs, gold in sets:
    totals = [jax.device_get(eval_step(params, batch)) for batch in batches]
    nll, weight = (sum(float(sums[name]) for sums in totals) for name in ('nll', 'weight'))
    loss = nll / max(weight, 1.0)
    sources, references = map(list, zip(*pairs, strict=True))
    answers = translate([params], sources, decoding, description='evaluating: ')
    texts = [answer.text for answer in answers]
    scores = {'loss': loss, 'perplexity': perplexity(loss)}
    if processes.is_first():
      scores['bleu'] = corpus_bleu(texts, [references], decoding.bleu_tokenize)
      for metric in metrics:
        with optional(f'{key}: a metric is left out', warn):
          scores |= metric(sources, texts, references, gold)
      if all(map(is_blank, references)):
        warn(f'{key}: every reference is empty, so nothing is compared, and no step is the best')
        scores |= dict.fromkeys(scores.keys() & {'bleu', 'chrf'}, math.nan)
    values |= {f'{key}/{name}': value for name, value in scores.items()}
    translations[key] = texts
  # A metric of one's own may give other scores elsewhere, and all processes must decide alike.
  values = processes.from_first(lambda: values)
  pairs = sets[0].pairs
  texts = translations[sets[0].key]
  samples = [
    Sample(*pairs[number], texts[number])
    for number in range(0, len(pairs), -(-len(pairs) // _SHOWN))
  ]
  return Evaluation(values, translations, samples)


def validation_metrics(config: Config) -> list[Metric]:
  """Returns the metrics that a config asks for in addition to the loss and BLEU."""
  check_tokenizer(config.decode.bleu_tokenize)
  metrics = []
  if spec := config.train.valid_metric:
    metrics.append(functools.partial(_scores, load_metric(spec)))
  if config.train.best_by.rpartition('/')[2] == 'chrf':
    metrics.append(
      lambda _, translations, references, gold: {'chrf': corpus_chrf(translations, [references])}
    )
  return metrics


def check_metrics(metrics: Sequence[Metric], config: Config, corpus: Corpus, begun: bool):
  """Computes metrics once, so that a mistake in them ends a new run before it trains.

  Each source of a validation set gets the target of the next for a translation. Nothing may lack
  the name that `train.best_by` gives.
  """
  sources, references = map(list, zip(*corpus[:_TRIED], strict=True))
  gold = corpus.gold and corpus.gold[:_TRIED]
  names = {'loss', 'perplexity', 'bleu'}
  for metric in metrics:
    with optional('evaluations may lack a metric', warn) if begun else contextlib.nullcontext():
      names |= metric(sources, [*references[1:], references[0]], references, gold).keys()
  if (name := config.train.best_by.rpartition('/')[2]) and name not in names:
    raise UserError(f'train.best_by must name one of {", ".join(sorted(names))}; got {shown(name)}')


def _scores(
  metric: OwnMetric,
  sources: list[str],
  translations: list[str],
  references: list[str],
  gold: Sequence[str] | None,
) -> dict[str, float]:
  """Returns the scores of one's own metric by name; refuses a name that is taken."""
  scores = own_scores(metric, sources, translations, [references if gold is None else gold])
  for score in scores:
    if score.name in STANDARD_METRICS:
      raise UserError(
        f'the metric {metric.spec} gives {shown(score.name)}, which is the name of '
        f'another measure of the validation text; give it another name'
      )
  return {score.name: score.score for score in scores}
