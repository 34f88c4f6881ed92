"""All scores of one set of translations, as JSON data and as a table."""

from collections.abc import Sequence
from typing import Any

from transformer.errors import UserError
from transformer.evaluation.metrics import bleu_by_protocol, corpus_scores, sentence_scores
from transformer.evaluation.own_metrics import OwnMetric, OwnScore, own_scores
from transformer.inference.translator import Translation

# Names in the results: of metrics, of the fields of a sentence, and of the first column of a table.
_TAKEN = ('BLEU', 'chrF2++', 'TER', 'source', 'references', 'translation', 'model_score', 'step',
          'BLEU_interval_95')


def evaluate(sources: Sequence[str], references: Sequence[Sequence[str]],
             answers: Sequence[Translation], seconds: float, tokenize: str,
             target_language: str, own_metrics: Sequence[OwnMetric] = ()
             ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """Scores all translations together, and each by itself.

  Args:
    sources: the sentences that were translated.
    references: one or more sequences, each as long as the sources.
    answers: the translations.
    seconds: the time of translating, with compilation.
    tokenize: BLEU's tokenizer.
    target_language: the language of the translations; `de` adds a protocol.
    own_metrics: more metrics.

  Returns:
    JSON data for `Place.write`: the scores of the text, and an object for each sentence.

  Raises:
    UserError: a reference has another number of lines, or a metric of one's own fails or has a
      name that is taken.
  """
  translations = [answer.text for answer in answers]
  headline, *protocols = bleu_by_protocol(translations, references, tokenize, target_language)
  metrics = corpus_scores(translations, references, tokenize)
  own: list[tuple[str, OwnScore]] = []
  for each in own_metrics:
    for score in own_scores(each, sources, translations, references):
      if score.name in (*_TAKEN, *(other.name for _, other in own)):
        raise UserError(f'a metric must have a name of its own; {each.spec} gives {score.name!r}, '
                        f'which names another score or a field of the results; rename it')
      own.append((each.spec, score))
  words = [sum(len(line.split()) for line in side) for side in (translations, references[0])]
  result = {
      'bleu': headline.score, 'signature': headline.signature, 'details': headline.details,
      'metrics': [{'name': each.name, 'score': each.score, 'interval_95': each.interval,
                   'signature': each.signature} for each in metrics] + [
                       {'name': each.name, 'score': each.score, 'interval_95': each.interval,
                        'signature': spec} for spec, each in own],
      'protocols': [{'name': each.name, 'bleu': each.score, 'signature': each.signature}
                    for each in (headline, *protocols)],
      'sentences': len(sources), 'cut_sources': sum(answer.cut for answer in answers),
      'length_ratio': words[0] / max(1, words[1]), 'seconds': seconds,
      'sentences_per_second': len(sources) / seconds}
  sentences = [
      {'source': source, 'references': list(sides), 'translation': answer.text,
       'model_score': answer.score, **scores}
      for source, answer, scores, *sides in zip(
          sources, answers, sentence_scores(translations, references, tokenize), *references,
          strict=True)]
  for _, score in own:
    for sentence, value in zip(sentences, score.sentences or (), strict=False):
      sentence[score.name] = value
  return result, sentences


def as_table(result: dict[str, Any]) -> list[str]:
  """Returns the lines of a table: metrics with their intervals, then the other BLEU protocols."""
  rows = [(each['name'], each['score'], '{:.2f} … {:.2f}'.format(*each['interval_95'])
           if each['interval_95'] else '', each['signature']) for each in result['metrics']]
  rows += [(each['name'], each['bleu'], '', each['signature']) for each in result['protocols'][1:]]
  names, intervals = (max(len(row[column]) for row in rows) for column in (0, 2))
  return [f'  {name:{names}}  {score:6.2f}  {interval:{intervals}}  {signature}'
          for name, score, interval, signature in rows]
