"""Evaluation of a run's parameters on its validation sets: loss, BLEU and samples."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging

from transformer.config import Config
from transformer.data.batch import Batch
from transformer.data.text.sources import Corpus
from transformer.decoding.attention_maps import Attender, picture
from transformer.decoding.translator import Translator
from transformer.errors import UserError, optional
from transformer.evaluation.metrics import check_tokenizer, corpus_bleu, corpus_chrf
from transformer.evaluation.own_metrics import OwnMetric, load_metric, own_scores
from transformer.experiment.meter import perplexity
from transformer.experiment.reporting import Sample
from transformer.system.progress import progress_bar
from transformer.training.config import STANDARD_METRICS

_SHOWN = 5  # TensorBoard shows this many sentences, evenly spread over the split.


class Validation(NamedTuple):
  """The result of translating a validation set.

  Attributes:
    bleu: BLEU of the whole set.
    samples: a few sentences for TensorBoard.
    pictures: uint8 [height, width] by name, for TensorBoard.
    more: scores of other metrics, by name.
    translations: of all sentences.
    failures: a line on each metric or picture that failed.
  """

  bleu: float
  samples: Sequence[Sample] = ()
  pictures: Mapping[str, np.ndarray] = {}
  more: Mapping[str, float] = {}
  translations: Sequence[str] = ()
  failures: Sequence[str] = ()


# sacreBLEU's, which is computed if `train.best_by` names it.
_CHRF = OwnMetric('sacrebleu:chrf', lambda _, *texts: corpus_chrf(*texts))
_TRIED = 5  # Metrics are tried on this many pairs.


class ValidationSet(NamedTuple):
  """A validation set, and how its translations are scored.

  Attributes:
    key: the beginning of its metrics' names: `valid`, or `valid/NAME` after the first set.
    batches: its pairs, packed.
    validate: (params) -> `Validation`.
  """

  key: str
  batches: Sequence[Batch]
  validate: Callable[[Any], Validation]


def validation_metrics(config: Config) -> list[OwnMetric]:
  """Returns the metrics that a config asks for in addition to the loss and BLEU.

  Raises:
    UserError: one's own metric cannot be imported, or BLEU's tokenizer lacks packages.
  """
  check_tokenizer(config.decode.bleu_tokenize)
  metrics = [load_metric(config.train.valid_metric)] if config.train.valid_metric else []
  if config.train.best_by.rpartition('/')[2] == 'chrf':
    metrics.append(_CHRF)
  return metrics


def check_metrics(metrics: Sequence[OwnMetric], config: Config, corpus: Corpus, begun: bool):
  """Computes metrics once, so that a mistake in them ends a run before it trains.

  Args:
    metrics: from `validation_metrics`.
    config: the settings of the run.
    corpus: a validation set. Each source gets the target of the next for a translation.
    begun: whether the run has begun before; then a metric that fails is only a warning.

  Raises:
    UserError: a metric of a new run fails, or has a name that is taken; or nothing has the name
      that `train.best_by` gives.
  """
  sources, references = (list(side) for side in zip(*corpus[:_TRIED], strict=True))
  gold = corpus.gold and corpus.gold[:_TRIED]
  names = {'loss', 'perplexity', 'bleu'}
  for metric in metrics:
    with (optional('evaluations may lack a metric', logging.warning) if begun
          else contextlib.nullcontext()):
      names |= _scores(metric, sources, [*references[1:], references[0]], references, gold).keys()
  if (name := config.train.best_by.rpartition('/')[2]) and name not in names:
    raise UserError(f'train.best_by must name one of {", ".join(sorted(names))}; got {name!r}')


def _scores(metric: OwnMetric, sources: Sequence[str], translations: Sequence[str],
            references: Sequence[str], gold: Sequence[str] | None) -> dict[str, float]:
  """Returns the scores of a metric by name; refuses a name that is taken."""
  if gold is not None and metric is not _CHRF:
    references = gold
  scores = {}
  for score in own_scores(metric, sources, translations, [references]):
    if score.name in scores or (score.name in STANDARD_METRICS and metric is not _CHRF):
      raise UserError(f'the metric {metric.spec} gives {score.name!r}, which is the name of '
                      f'another measure of the validation text; give it another name')
    scores[score.name] = score.score
  return scores


def make_validation(translate: Translator, sources: Sequence[str], references: Sequence[str],
                    tokenize: str, attend: Attender | None,
                    gold: Sequence[str] | None = None, metrics: Sequence[OwnMetric] = ()
                    ) -> Callable[[Any], Validation]:
  """Returns the function that translates a validation set with given parameters.

  Args:
    translate: translates sentences with given parameters.
    sources: the set's source sentences.
    references: a translation of each.
    tokenize: sacreBLEU's tokenizer.
    attend: computes the attention of the first sentence for a picture; None draws nothing.
    gold: what metrics of one's own get in place of the references; None if there is no such thing.
    metrics: other metrics.
  """
  def validate(params) -> Validation:
    with progress_bar(len(sources), description='evaluating: ') as bar:
      answers = translate(params, sources, progress=bar.update)
    translations = [each.text for each in answers]
    shown = range(0, len(sources), -(-len(sources) // _SHOWN))
    pictures, more, failures = {}, {}, []
    if attend is not None:
      with optional('the attention was not drawn', failures.append):
        seen, = attend(params, sources[:1], references[:1])  # The same pair at every evaluation.
        pictures = {f'valid/attention_{kind}': picture(weights)
                    for kind, weights in seen.weights._asdict().items()}
    for metric in metrics:
      with optional('a metric is left out', failures.append):
        more |= _scores(metric, sources, translations, references, gold)
    return Validation(corpus_bleu(translations, [references], tokenize).score,
                      [Sample(sources[each], references[each], translations[each])
                       for each in shown], pictures, more, translations, failures)

  return validate


def evaluate(eval_step: Callable, params: Any,
             sets: Sequence[ValidationSet]) -> tuple[dict[str, float], dict[str, Validation]]:
  """Evaluates parameters on the validation sets.

  Args:
    eval_step: (params, batch) -> sums.
    params: the parameters.
    sets: at least one.

  Returns:
    Loss in nats per token without smoothing, its perplexity, BLEU and other metrics of each set,
    by their names in `metrics.jsonl`; and the `Validation` of each set, by its key.
  """
  values, validations = {}, {}
  for key, batches, validate in sets:
    totals = [jax.device_get(eval_step(params, batch)) for batch in batches]
    sums = {name: sum(float(each[name]) for each in totals) for name in ('nll', 'weight')}
    loss = sums['nll'] / max(sums['weight'], 1.0)
    validations[key] = validation = validate(params)
    scores = {'loss': loss, 'perplexity': perplexity(loss), 'bleu': validation.bleu,
              **validation.more}
    values |= {f'{key}/{name}': value for name, value in scores.items()}
  return values, validations
