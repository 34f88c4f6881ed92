"""Evaluation of a run's parameters on the validation split: loss, BLEU and samples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.evaluation import parses
from transformer.evaluation.metrics import corpus_bleu
from transformer.evaluation.own_metrics import OwnMetric, own_scores
from transformer.experiment.meter import perplexity
from transformer.experiment.reporting import Sample
from transformer.inference.attention_maps import Attender, picture
from transformer.inference.translator import Translator

_SHOWN = 5  # TensorBoard shows this many sentences, evenly spread over the split.


class Validation(NamedTuple):
  """The result of translating the validation split.

  Attributes:
    bleu: BLEU of the whole split; of trees as the sequences that the model writes.
    samples: a few sentences for TensorBoard.
    pictures: uint8 [height, width] by name, for TensorBoard.
    f1: labelled F1 of the brackets of the whole split; None for translations.
    own: scores of one's own metric, by name.
  """

  bleu: float
  samples: Sequence[Sample] = ()
  pictures: Mapping[str, np.ndarray] = {}
  f1: float | None = None
  own: Mapping[str, float] = {}


def make_validation(translate: Translator, sources: Sequence[str], references: Sequence[str],
                    tokenize: str, attend: Attender | None,
                    trees: Sequence[str] | None = None, own_metric: OwnMetric | None = None
                    ) -> Callable[[Any], Validation]:
  """Returns the function that translates the validation split with given parameters.

  Args:
    translate: translates sentences with given parameters.
    sources: the split's source sentences.
    references: a translation of each.
    tokenize: sacreBLEU's tokenizer.
    attend: computes the attention of the first sentence for a picture; None draws nothing.
    trees: the tree of each sentence with words and tags, if the references are linearised trees.
    own_metric: another metric; None is none.
  """
  def validate(params) -> Validation:
    answers = translate(params, sources)
    translations = [each.text for each in answers]
    shown = range(0, len(sources), -(-len(sources) // _SHOWN))
    pictures = {}
    if attend is not None:
      seen, = attend(params, sources[:1], references[:1])  # The same pair at every evaluation.
      pictures = {f'valid/attention_{kind}': picture(weights)
                  for kind, weights in seen.weights._asdict().items()}
    return Validation(corpus_bleu(translations, [references], tokenize).score,
                      [Sample(sources[each], references[each], translations[each])
                       for each in shown], pictures,
                      None if trees is None else parses.f1(sources, trees, answers),
                      {score.name: score.score for score in own_scores(
                          own_metric, sources, translations, [references])} if own_metric else {})

  return validate


def evaluate(eval_step: Callable, validate: Callable[[Any], Validation], params: Any,
             batches: Sequence[Any]) -> tuple[dict[str, float], Validation]:
  """Evaluates parameters on the validation split.

  Args:
    eval_step: (params, batch) -> sums.
    validate: (params) -> `Validation`.
    params: the parameters.
    batches: the split, packed.

  Returns:
    Loss in nats per token without smoothing, its perplexity, BLEU, F1 of trees, and one's own
    metric, by their names in `metrics.jsonl`; and the result of `validate`.
  """
  totals = [jax.device_get(eval_step(params, batch)) for batch in batches]
  sums = {name: sum(float(each[name]) for each in totals) for name in ('nll', 'weight')}
  loss = sums['nll'] / max(sums['weight'], 1.0)
  validation = validate(params)
  f1 = {} if validation.f1 is None else {'valid/f1': validation.f1}
  return {'valid/loss': loss, 'valid/perplexity': perplexity(loss),
          'valid/bleu': validation.bleu, **f1,
          **{f'valid/{name}': score for name, score in validation.own.items()}}, validation
