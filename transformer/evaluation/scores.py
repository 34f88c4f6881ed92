"""All scores of one set of translations, as JSON data: BLEU first, then what takes longer."""

from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from transformer.decoding.translator import Translation
from transformer.errors import UserError, optional
from transformer.evaluation import metrics
from transformer.evaluation.own_metrics import OwnMetric, own_scores
from transformer.evaluation.resampling import Score, metric_lines
from transformer.evaluation.texts import Text

# Names in the results: of metrics, of the fields of a sentence, and of the first column of a table.
_TAKEN = {*metrics.NAMES, 'source', 'references', 'translation', 'model_score', 'step',
          'BLEU_interval_95'}


def evaluate(text: Text, answers: Sequence[Translation], seconds: float, tokenize: str,
             target_language: str, own_metrics: Sequence[OwnMetric] = (), ter: bool | None = None
             ) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
  """Scores all translations together, and each by itself.

  A metric that fails is left out with a warning, whatever the failure, which stands in `left_out`
  of the text, too.

  Args:
    text: the sentences that were translated, and their references.
    answers: the translations.
    seconds: the time of translating, with compilation.
    tokenize: BLEU's tokenizer.
    target_language: the language of the translations; `de` adds a protocol.
    own_metrics: more metrics.
    ter: whether TER is computed; None computes it unless a line has more words than
      `metrics.MOST_TER_WORDS`.

  Yields:
    JSON data for `Result.write`: the scores of the text, and an object for each sentence. They
    have BLEU the first time, and more scores each time after.
  """
  lines, count = [answer.text for answer in answers], len(text.sources)
  both = lines, text.references
  bleu = metrics.score_text('BLEU', *both, tokenize)
  words = [sum(len(line.split()) for line in side) for side in (lines, text.references[0])]
  result = {
      'bleu': bleu.score, 'signature': bleu.signature, 'details': bleu.details, 'metrics': [],
      'protocols': [_protocol(bleu._replace(name=tokenize))], 'left_out': [], 'sentences': count,
      'cut_sources': sum(answer.cut for answer in answers),
      'length_ratio': words[0] / max(1, words[1]), 'seconds': seconds,
      'sentences_per_second': count / seconds}
  sentences = [{'source': source, 'references': list(sides), 'translation': answer.text,
                'model_score': answer.score}
               for source, answer, *sides in zip(text.sources, answers, *text.references,
                                                 strict=True)]

  def add(*scores: Score):
    for score in scores:
      result['metrics'].append(score.to_json())
      for sentence, value in zip(sentences, score.sentences, strict=False):
        sentence[score.name] = value

  def add_ter():
    if not ter and (long := metrics.too_long_for_ter(*both, tokenize)):
      raise UserError(f'{long} of {count} sentences have more than {metrics.MOST_TER_WORDS} words, '
                      f'which takes long; --ter computes it')
    add(metrics.score_text('TER', *both, tokenize))

  def add_own(metric: OwnMetric):
    gold = text.references if text.gold is None else [text.gold]
    scores = own_scores(metric, text.sources, lines, gold)
    taken = _TAKEN | {row['name'] for row in result['metrics']}
    for score in scores:
      if score.name in taken:
        raise UserError(f'{metric.spec} gives {score.name!r}, which names another score or a field '
                        f'of the results; rename it')
      taken.add(score.name)
    add(*scores)

  def leave_out(line: str):
    result['left_out'].append(line)
    logging.warning('%s', line)

  add(bleu)
  yield result, sentences
  steps = {'chrF2++': lambda: add(metrics.score_text('chrF2++', *both, tokenize))}
  if ter is not False:
    steps['TER'] = add_ter
  steps['protocols'] = lambda: result['protocols'].extend(
      map(_protocol, metrics.other_protocols(*both, tokenize, target_language)))
  steps |= {metric.spec: lambda metric=metric: add_own(metric) for metric in own_metrics}
  for name, compute in steps.items():
    with optional(f'{name} is left out', leave_out):
      compute()
    yield result, sentences


def _protocol(score: Score) -> dict[str, Any]:
  return {'name': score.name, 'bleu': score.score, 'signature': score.signature}


def protocol_lines(result: dict[str, Any]) -> list[str]:
  """Returns lines for people: BLEU's parts, and BLEU by the other protocols."""
  return [f'  {result["details"]}', *metric_lines(
      [protocol | {'score': protocol['bleu'], 'interval_95': None}
       for protocol in result['protocols'][1:]])]
