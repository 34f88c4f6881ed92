"""Reports of scores: computed, written and printed by eval.py if there are references."""

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from absl import logging

from transformer.decoding.translator import Translation
from transformer.errors import UserError, short_repr, warn_on_error
from transformer.evaluation import results
from transformer.evaluation.eval_sets import EvalSet
from transformer.evaluation.metrics import SACREBLEU_METRICS, score_with_intervals
from transformer.evaluation.scores import CustomMetric, Score, custom_scores

# Corpus scores, and a dict for each sentence; the first metric is the headline.
Scores = tuple[dict, list[dict]]


def evaluate(
  eval_set: EvalSet,
  translations: Sequence[Translation],
  seconds: float,
  tokenize: str,
  custom_metrics: Sequence[CustomMetric] = (),
) -> Iterator[Scores]:
  """Yields (corpus, sentence) scores: with BLEU and chrF2++, then after each custom metric.

  `seconds` is the translation time. A custom metric that fails is omitted with a warning, which is
  also stored in `failed_metrics` of the corpus scores.
  """
  lines = [translation.text for translation in translations]
  standard = [
    score_with_intervals(name, lines, eval_set.references, tokenize)
    for name in SACREBLEU_METRICS
  ]
  bleu = standard[0]
  scores = {
    'bleu': bleu.score,
    'signature': bleu.signature,
    'details': bleu.details,
    'metrics': [],
    'failed_metrics': [],
    'sentences': len(lines),
    'truncated_sources': sum(translation.truncated for translation in translations),
    'seconds': seconds,
    'sentences_per_second': len(lines) / seconds,
  }
  sentences = [
    {
      'source': source,
      'references': sides,
      'translation': translation.text,
      'model_score': translation.score,
    }
    for source, translation, *sides in zip(
      eval_set.sources, translations, *eval_set.references, strict=True
    )
  ]
  _add(scores, sentences, standard)
  yield scores, sentences

  def add_failure(line: str):
    scores['failed_metrics'].append(line)
    logging.warning(line)

  gold = eval_set.references if eval_set.gold is None else [eval_set.gold]
  for metric in custom_metrics:
    with warn_on_error(f'the metric {metric.spec} is skipped', add_failure):
      custom = custom_scores(metric, eval_set.sources, lines, gold)
      used_names = {'step', *sentences[0], *(row['name'] for row in scores['metrics'])}
      clash = used_names.intersection(score.name for score in custom)
      if clash:
        raise UserError(
          f'the metric returns {short_repr(min(clash))}, already the name of another score or of a '
          'field of the results; rename it'
        )
      _add(scores, sentences, custom)
    yield scores, sentences


def _add(scores: dict, sentences: list[dict], new_scores: Sequence[Score]):
  """Adds corpus scores to `scores`, and sentence scores to `sentences`."""
  for score in new_scores:
    scores['metrics'].append(
      {
        'name': score.name,
        'score': score.score,
        'interval_95': score.interval,
        'signature': score.signature,
      }
    )
    for sentence, value in zip(sentences, score.sentences, strict=False):
      sentence[score.name] = value


def write_and_print(
  result: results.Result, stages: Iterable[Scores], stream: TextIO
) -> dict:
  """Writes and prints the scores of each stage; returns the row for `write_and_print_table`.

  Prints to `stream`. If the disk is full or the reader of a pipe has exited, still computes all
  scores, and still writes or prints them where possible. Then raises the first error.
  """
  errors = []
  printed = 0
  for scores, sentences in stages:
    rows = scores['metrics']
    try:
      result.write(scores, sentences)
    except (OSError, UserError) as error:
      errors.append(error)
    try:
      if not printed:
        variant = ', '.join(f'{key} {value}' for key, value in result.variant.items())
        print(
          f'{result.content["text"]}: {len(sentences)} sentences in '
          f'{scores["seconds"]:.1f} s, {variant}',
          file=stream,
        )
      for row in rows[printed:]:
        ends = row.get('interval_95')
        interval = '{:.2f} … {:.2f}'.format(*ends) if ends else ''
        print(
          f'  {row["name"]:9}  {row["score"]:6.2f}  {interval:15}  {row["signature"]}',
          file=stream,
          flush=True,
        )
    except OSError as error:
      errors.append(error)
    printed = len(rows)
  if errors:
    raise errors[0]
  print(f'also in {result.path}', file=stream)
  return {
    'step': result.content['steps'][-1],
    **{row['name']: row['score'] for row in rows},
    f'{rows[0]["name"]}_interval_95': rows[0]['interval_95'],
  }


def show_examples(
  eval_set: EvalSet, translations: Sequence[Translation], count: int, stream: TextIO
):
  """Prints up to `count` translations with sources and references, evenly spaced over the text."""
  count = min(count, len(eval_set.sources))
  for example in range(count):
    index = example * len(eval_set.sources) // count
    print(
      f'  source       {eval_set.sources[index]}\n'
      f'  reference    {eval_set.references[0][index]}\n'
      f'  translation  {translations[index].text}\n',
      file=stream,
    )


def write_and_print_table(scored: Sequence[tuple]):
  """Prints and writes the scores of all checkpoints; marks the best.

  `scored` has a result and a row from `write_and_print` for each checkpoint.
  """
  rows = [row for _, row in scored]
  headline = list(rows[0])[1]
  best = max(rows, key=operator.itemgetter(headline))
  for row in rows:
    cells = [
      f'{name} {score:.2f}' for name, score in row.items() if isinstance(score, float)
    ]
    print(f'step {row["step"]:6}  {"  ".join(cells)}{"  *" if row is best else ""}')
  result, _ = scored[0]
  table = results.new_result(
    result.path.parent, {**result.content, 'steps': []}, '.all'
  )
  table.write({'steps': [row['step'] for row in rows], 'checkpoints': rows})
  print(f'also in {table.path}')
