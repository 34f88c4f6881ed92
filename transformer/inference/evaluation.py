"""What is found of translations that have references: for papers, for people and for programs."""

from collections.abc import Sequence
from typing import Any

from transformer.inference.metrics import bleu_by_protocol, corpus_scores, sentence_scores
from transformer.inference.translate import Translation


def evaluate(sources: Sequence[str], references: Sequence[Sequence[str]],
             answers: Sequence[Translation], seconds: float, tokenize: str,
             target_language: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """Scores translations as a whole, and each by itself.

  Args:
    sources: what was translated.
    references: one or more sequences, each as long as the sources.
    answers: the translations.
    seconds: that they took, compilation included.
    tokenize: BLEU's tokenizer.
    target_language: of the translations.

  Returns:
    What `STEM.json` says of them, and the lines of `STEM.sentences.jsonl`.

  Raises:
    UserError: a reference has another number of lines.
  """
  translations = [answer.text for answer in answers]
  headline, *protocols = bleu_by_protocol(translations, references, tokenize, target_language)
  metrics = corpus_scores(translations, references, tokenize)
  words = [sum(len(line.split()) for line in side) for side in (translations, references[0])]
  result = {
      'bleu': headline.score, 'signature': headline.signature, 'details': headline.details,
      'metrics': [{'name': each.name, 'score': each.score, 'interval_95': each.interval,
                   'signature': each.signature} for each in metrics],
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
  return result, sentences


def in_words(result: dict[str, Any]) -> list[str]:
  """A table of metrics with their intervals, and one of BLEU's protocols."""
  rows = [(each['name'], each['score'], '{:.2f} … {:.2f}'.format(*each['interval_95']),
           each['signature']) for each in result['metrics']]
  rows += [(each['name'], each['bleu'], '', each['signature']) for each in result['protocols'][1:]]
  names, intervals = (max(len(row[column]) for row in rows) for column in (0, 2))
  return [f'  {name:{names}}  {score:6.2f}  {interval:{intervals}}  {signature}'
          for name, score, interval, signature in rows]
