"""The result of reranked translations, beside the result of the n-best lists."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from transformer.decoding.translator import Translation
from transformer.evaluation import result_files, results, scores
from transformer.evaluation.own_metrics import OwnMetric
from transformer.evaluation.resampling import metric_lines
from transformer.evaluation.texts import Text


class Scored(NamedTuple):
  """A result of eval.py, with its sentences."""

  result: result_files.Result
  sentences: list[dict[str, Any]]

  @property
  def tokenize(self) -> str:
    """BLEU's tokenizer."""
    return self.result.content['decode']['bleu_tokenize']


def read(path: Path) -> Scored:
  """Reads a result and its sentences.

  Raises:
    UserError: a file cannot be read, or is not one that eval.py wrote.
  """
  result = result_files.read(path)
  return Scored(result, result_files.read_sentences(result))


def report(scored: Scored, chosen: Sequence[tuple[str, float]], seconds: float, utility: str,
           own_metrics: Sequence[OwnMetric], people: TextIO):
  """Scores the choices, prints the scores, and writes them beside the result of the lists.

  Args:
    scored: the result of the lists.
    chosen: the translation of each sentence, with its model score.
    seconds: the time of choosing.
    utility: names the choice in the result, such as `chrF2++.32`.
    own_metrics: further metrics.
    people: the stream that people read.

  Raises:
    UserError: the result cannot be written.
  """
  content, path = scored.result.content, scored.result.path
  references = zip(*(sentence['references'] for sentence in scored.sentences), strict=True)
  text = Text(content['text'], [sentence['source'] for sentence in scored.sentences],
              list(map(list, references)))
  answers = [Translation(text, score, False, ((text, score),)) for text, score in chosen]
  german = any(protocol['name'] == 'compound-split' for protocol in content['protocols'])
  stages = scores.evaluate(text, answers, content['seconds'] + seconds, scored.tokenize,
                           'de' if german else '', own_metrics)
  place = results.Place(path.parent, path.stem, {'mbr': utility})
  for result, sentences in stages:
    whole = {**content, **result, 'cut_sources': content['cut_sources'],
             'command': sys.argv[1:], 'more': content['more'] | {'mbr': utility}}
    place.write(Path(content['workdir']), content['text_sha256'], whole, sentences)
  print(f'{text.name}: {len(answers)} sentences, the choice by {utility}',
        *metric_lines(result['metrics']), f'also in {path.parent / place.stem}.json', sep='\n',
        file=people)
