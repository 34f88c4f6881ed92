"""Reports of scores: what eval.py computes, writes and prints for translations with references."""

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from absl import logging

from transformer.decoding.translator import Translation
from transformer.errors import UserError, optional, shown
from transformer.evaluation import metrics
from transformer.evaluation.results import Result
from transformer.evaluation.scores import OwnMetric, Score, own_scores
from transformer.evaluation.texts import Text

# Names in the results: of metrics, of the fields of a sentence, and of the first column of a table.
_TAKEN = {
  *metrics.NAMES,
  'source',
  'references',
  'translation',
  'model_score',
  'step',
  'BLEU_interval_95',
}
# The scores of a text, and an object for each sentence; the first metric is the headline.
Scores = tuple[dict[str, Any], list[dict[str, Any]]]


def evaluate(
  text: Text,
  answers: Sequence[Translation],
  seconds: float,
  tokenize: str,
  target_language: str,
  own_metrics: Sequence[OwnMetric] = (),
  ter: bool | None = None,
) -> Iterator[Scores]:
  """Yields the scores of the text and of its sentences: BLEU first, then more after each metric.

  The translations took `seconds`. A metric that fails is left out with a warning, which stands in
  `left_out` of the text, too. So is TER of lines that are too long, if `ter` is None. A
  `target_language` of `de` adds a protocol.
  """
  lines = [answer.text for answer in answers]
  count = len(text.sources)
  both = lines, text.references
  bleu = metrics.score_text('BLEU', *both, tokenize)
  words, reference_words = (len(' '.join(side).split()) for side in (lines, text.references[0]))
  result = {
    'bleu': bleu.score,
    'signature': bleu.signature,
    'details': bleu.details,
    'metrics': [],
    'protocols': [_protocol(bleu._replace(name=tokenize))],
    'left_out': [],
    'sentences': count,
    'cut_sources': sum(answer.cut for answer in answers),
    'length_ratio': words / max(1, reference_words),
    'seconds': seconds,
    'sentences_per_second': count / seconds,
  }
  sentences = [
    {'source': source, 'references': sides, 'translation': answer.text, 'model_score': answer.score}
    for source, answer, *sides in zip(text.sources, answers, *text.references, strict=True)
  ]

  def add(*scores: Score):
    for score in scores:
      result['metrics'].append(score.to_json())
      for sentence, value in zip(sentences, score.sentences, strict=False):
        sentence[score.name] = value

  def add_ter():
    if not ter and (long := metrics.too_long_for_ter(*both, tokenize)):
      raise UserError(
        f'{long} of {count} sentences have more than {metrics.MOST_TER_WORDS} words, '
        f'which takes long; --ter computes it'
      )
    add(metrics.score_text('TER', *both, tokenize))

  def add_own(metric: OwnMetric):
    gold = text.references if text.gold is None else [text.gold]
    scores = own_scores(metric, text.sources, lines, gold)
    taken = _TAKEN | {row['name'] for row in result['metrics']}
    if names := [score.name for score in scores if score.name in taken]:
      raise UserError(
        f'{metric.spec} gives {shown(names[0])}, which names another score or a '
        f'field of the results; rename it'
      )
    add(*scores)

  def leave_out(line: str):
    result['left_out'].append(line)
    logging.warning('%s', line)

  add(bleu)
  yield result, sentences
  steps = {
    'chrF2++': lambda: add(metrics.score_text('chrF2++', *both, tokenize)),
    'TER': add_ter,
    'protocols': lambda: result['protocols'].extend(
      map(_protocol, metrics.other_protocols(*both, tokenize, target_language))
    ),
    **{metric.spec: functools.partial(add_own, metric) for metric in own_metrics},
  }
  if ter is False:
    del steps['TER']
  for name, compute in steps.items():
    with optional(f'{name} is left out', leave_out):
      compute()
    yield result, sentences


def _protocol(score: Score) -> dict[str, Any]:
  return {'name': score.name, 'bleu': score.score, 'signature': score.signature}


def report(
  result: Result,
  stages: Iterable[Scores],
  people: TextIO,
  more_lines: Callable[[dict[str, Any]], list[str]] = lambda _: [],
) -> dict[str, Any]:
  """Writes and prints scores as they come, each stage more; returns the row for `print_table`.

  On a full disk, or after the end of a pipe's reader, the scores are still computed, and written
  or printed. Then the first error is raised. `more_lines` has lines for people from all scores.
  """
  errors = []
  printed = 0

  def attempt(function: Callable, *arguments):
    try:
      function(*arguments)
    except (OSError, UserError) as error:
      errors.append(error)

  say = functools.partial(attempt, functools.partial(print, file=people, flush=True))
  for scores, sentences in stages:
    rows = scores['metrics']
    attempt(result.write, scores, sentences)
    if not printed:
      seconds = f' in {scores["seconds"]:.1f} s' if 'seconds' in scores else ''
      how = ', '.join(f'{key} {value}' for key, value in result.how.items())
      say(f'{result.content["text"]}: {len(sentences)} sentences{seconds}, {how}')
    for row in rows[printed:]:
      say(_line(**row))
    printed = len(rows)
  for line in more_lines(scores):
    say(line)
  if errors:
    raise errors[0]
  print(f'also in {result.path}', file=people)
  return {
    'step': result.content['steps'][-1],
    **{row['name']: row['score'] for row in rows},
    f'{rows[0]["name"]}_interval_95': rows[0]['interval_95'],
  }


def _line(
  name: str, score: float, signature: str, interval_95: Sequence[float] | None = None
) -> str:
  interval = '{:.2f} … {:.2f}'.format(*interval_95) if interval_95 else ''
  return f'  {name:9}  {score:6.2f}  {interval:15}  {signature}'


def protocol_lines(result: dict[str, Any]) -> list[str]:
  """Returns lines for people: BLEU's parts, and BLEU by the other protocols."""
  return [
    f'  {result["details"]}',
    *(
      _line(protocol['name'], protocol['bleu'], protocol['signature'])
      for protocol in result['protocols'][1:]
    ),
  ]


def show_examples(text: Text, answers: Sequence, count: int, people: TextIO):
  """Prints up to `count` translations beside their references, taken evenly from the text."""
  count = min(count, len(text.sources))
  for number in range(count):
    index = number * len(text.sources) // count
    print(
      f'  source       {text.sources[index]}\n  reference    {text.references[0][index]}\n'
      f'  translation  {answers[index].text}\n',
      file=people,
    )


def print_table(result: Result, rows: Sequence[dict[str, Any]]):
  """Prints and writes the scores of all checkpoints, the rows of `report`; marks the best."""
  _, headline, *_ = rows[0]
  # A metric may have been left out for some of them.
  names = dict.fromkeys(
    name for row in rows for name in row if name not in ('step', f'{headline}_interval_95')
  )
  best = max(rows, key=operator.itemgetter(headline))
  print(f'\n{"step":>9}' + ''.join(f'{name:>11}' for name in names))
  for row in rows:
    line = f'{row["step"]:9}' + ''.join(
      f'{row[name]:11.2f}' if name in row else f'{"":11}' for name in names
    )
    print(f'{line}  *' if row is best else line.rstrip())
  result.write({'steps': [row['step'] for row in rows], 'checkpoints': rows})
  print(f'also in {result.path}')
