"""All scores of one set of translations, as JSON data: BLEU first, then what takes longer."""

from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from transformer.decoding.translator import Translation
from transformer.errors import UserError, optional
from transformer.evaluation import metrics
from transformer.evaluation.own_metrics import OwnMetric, OwnScore, own_scores
from transformer.evaluation.resampling import metric_lines
from transformer.evaluation.texts import Text

# Names in the results: of metrics, of the fields of a sentence, and of the first column of a table.
_TAKEN = (*metrics.NAMES, 'source', 'references', 'translation', 'model_score', 'step',
          'BLEU_interval_95')


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
    JSON data for `Place.write`: the scores of the text, and an object for each sentence. They
    have BLEU the first time, and more scores each time after.

  Raises:
    UserError: a reference has another number of lines.
  """
  result, sentences = _with_bleu(text.sources, text.references, answers, seconds, tokenize)
  yield result, sentences
  texts = [answer.text for answer in answers], text.references
  gold = text.references if text.gold is None else [text.gold]

  def standard(name: str):
    score, values = metrics.score_text(name, *texts, tokenize)
    _add(result, sentences, score, values, score.signature)

  def standard_ter():
    if not ter and (long := metrics.too_long_for_ter(*texts, tokenize)):
      raise UserError(f'{long} of {len(text.sources)} sentences have more than '
                      f'{metrics.MOST_TER_WORDS} words, which takes long; --ter computes it')
    standard('TER')

  def protocols():
    result['protocols'] += [
        {'name': score.name, 'bleu': score.score, 'signature': score.signature}
        for score in metrics.other_protocols(*texts, tokenize, target_language)]

  def leave_out(line: str):
    result['left_out'].append(line)
    logging.warning('%s', line)

  steps = {'chrF2++': lambda: standard('chrF2++'), 'TER': standard_ter, 'protocols': protocols} | {
      metric.spec: lambda metric=metric: _add_own(metric, text.sources, texts[0], gold, result,
                                                  sentences)
      for metric in own_metrics}
  if ter is False:
    del steps['TER']
  for name, compute in steps.items():
    with optional(f'{name} is left out', leave_out):
      compute()
    yield result, sentences


def _with_bleu(sources: Sequence[str], references: Sequence[Sequence[str]],
               answers: Sequence[Translation], seconds: float, tokenize: str
               ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """Returns the data of `evaluate` with BLEU alone."""
  translations = [answer.text for answer in answers]
  bleu, of_sentences = metrics.score_text('BLEU', translations, references, tokenize)
  words = [sum(len(line.split()) for line in side) for side in (translations, references[0])]
  result = {
      'bleu': bleu.score, 'signature': bleu.signature, 'details': bleu.details, 'metrics': [],
      'protocols': [{'name': tokenize, 'bleu': bleu.score, 'signature': bleu.signature}],
      'left_out': [], 'sentences': len(sources),
      'cut_sources': sum(answer.cut for answer in answers),
      'length_ratio': words[0] / max(1, words[1]), 'seconds': seconds,
      'sentences_per_second': len(sources) / seconds}
  sentences = [{'source': source, 'references': list(sides), 'translation': answer.text,
                'model_score': answer.score}
               for source, answer, *sides in zip(sources, answers, *references, strict=True)]
  _add(result, sentences, bleu, of_sentences, bleu.signature)
  return result, sentences


def _add(result: dict[str, Any], sentences: Sequence[dict[str, Any]],
         score: metrics.Score | OwnScore, of_sentences: Sequence[float], signature: str):
  """Adds the score of a metric to the result, and those of sentences, if there are any."""
  result['metrics'].append({'name': score.name, 'score': score.score,
                            'interval_95': score.interval, 'signature': signature})
  for sentence, value in zip(sentences, of_sentences, strict=False):
    sentence[score.name] = value


def _add_own(metric: OwnMetric, sources: Sequence[str], translations: Sequence[str],
             references: Sequence[Sequence[str]], result: dict[str, Any],
             sentences: Sequence[dict[str, Any]]):
  """Computes one's own metric and adds its scores, all or none.

  Raises:
    UserError: it fails, or gives a name that is taken.
  """
  scores = own_scores(metric, sources, translations, references)
  taken = [*_TAKEN, *(other['name'] for other in result['metrics'])]
  for score in scores:
    if score.name in taken:
      raise UserError(f'a metric must have a name of its own; {metric.spec} gives {score.name!r}, '
                      f'which names another score or a field of the results; rename it')
    taken.append(score.name)
  for score in scores:
    _add(result, sentences, score, score.sentences or (), metric.spec)


def protocol_lines(result: dict[str, Any]) -> list[str]:
  """Returns lines for people: BLEU's parts, and BLEU by the other protocols."""
  return [f'  {result["details"]}', *metric_lines(
      [each | {'score': each['bleu'], 'interval_95': None} for each in result['protocols'][1:]])]
