"""Audits all the text of a config, and lays the report out for people."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from transformer.data.config import DataConfig
from transformer.data.corpora import Corpora
from transformer.data.text.sources import Corpus, open_corpus
from transformer.data.text.text_files import TextCorpus
from transformer.data.vocabulary.making import make_vocabulary
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.errors import UserError
from transformer.tools.audit.characters import shown
from transformer.tools.audit.findings import Findings, Side, examine

_WIDTH = 44  # characters of a sentence that an example shows
_PERCENTILES = (50, 99, 100)


class Audited(NamedTuple):
  """A corpus with what the audit found.

  Attributes:
    corpus: the pairs; files of different lengths end with the shorter one.
    about: lines of a report about the files and the two languages.
    findings: the indices of pairs, from 0, by what is odd about them.
  """

  corpus: Corpus
  about: list[str]
  findings: Findings


def audit(
  config: DataConfig, earlier: RunVocabulary | None = None
) -> Iterator[tuple[str, Audited]]:
  """Reads all the text of a config once; yields the name and the findings of each corpus.

  Pairs of training text are compared with the training text before them, and validation and test
  text with all training text.

  Args:
    config: the text, and the limits of lengths.
    earlier: the vocabulary of `train.init_from`, if there is one. The vocabulary is as training
      makes it.

  Raises:
    UserError: a training text cannot be read.
  """
  train = {f'train/{name}': _open(config, name) for name in config.train}
  vocabulary = make_vocabulary(config, Corpora(train, {}), earlier)
  keys = []
  for name, corpus in train.items():
    findings, sides, keys_of_corpus = examine(corpus, config, vocabulary)
    keys.append(keys_of_corpus)
    repeats = _repeats(_joined(keys, 'pair'))
    first = len(repeats) - len(corpus)
    findings['the pair repeats an earlier one'] = np.flatnonzero(repeats[first:])
    yield name, Audited(corpus, _about(corpus, sides), findings)
  splits = dict(config.valid_sets)
  if config.test:
    splits['test'] = config.test
  for name, split in splits.items():
    try:
      corpus = _open(config, split)
    except UserError as error:
      logging.warning('%s is not audited: %s', name, error)
      continue
    findings, sides, keys_of_corpus = examine(corpus, config, vocabulary)
    for part, ours in keys_of_corpus.items():
      in_training = np.isin(ours, _joined(keys, part))
      findings[f'the {part} is in training too'] = np.flatnonzero(in_training)
    yield name, Audited(corpus, _about(corpus, sides), findings)


def _joined(keys: list[dict[str, np.ndarray]], part: str) -> np.ndarray:
  """Returns the keys of the sources, the targets or the pairs of all training text."""
  return np.concatenate([of_corpus[part] for of_corpus in keys])


def _open(config: DataConfig, split: str) -> Any:
  """Opens a corpus; its files may have different numbers of lines."""
  if config.source == 'text':
    return TextCorpus(config, split, aligned=False)
  return open_corpus(config, split)


def _repeats(keys: np.ndarray) -> np.ndarray:
  """Returns which keys there are earlier, too, bool [keys]."""
  repeats = np.ones(len(keys), bool)
  _, first_places = np.unique(keys, return_index=True)
  repeats[first_places] = False
  return repeats


def _about(corpus: Corpus, sides: list[Side]) -> list[str]:
  """Returns the lines of a report about the files and the sides of a corpus."""
  lines = []
  of_sides = getattr(corpus, 'lines', (0, 0))
  if of_sides[0] != of_sides[1]:
    lines.append(
      f'NOT ALIGNED: {of_sides[0]:,} and {of_sides[1]:,} lines; train.py rejects such files; the '
      f'rest is about the first {len(corpus):,} lines of both'
    )
  lines += corpus.notes
  if len(corpus):
    lines += [_side(side) for side in sides]
  return lines


def _side(side: Side) -> str:
  """Returns the line about a language: its commonest scripts, and the lengths of its sentences."""
  parts = []
  letters = side.letters.total()
  for script, count in side.letters.most_common(3):
    parts.append(f'{_percent(count, letters)} {script.capitalize()}')
  tokens = side.columns().tokens
  median, most, longest = np.percentile(tokens, _PERCENTILES, method='inverted_cdf')
  parts.append(
    f'tokens of a sentence: median {median:,}, 99 % have at most {most:,}, '
    f'the longest {longest:,}'
  )
  return f'{side.language}: {"; ".join(parts)}'


def report_lines(name: str, audited: Audited, examples: int) -> Iterator[str]:
  """Yields the lines of a report about a corpus, the commonest findings first.

  Invisible characters are escaped. Each finding has the first `examples` lines, counted from 1.
  """
  corpus, about, findings = audited
  yield f'{name}: {corpus.name}, {len(corpus):,} pairs'
  for line in about:
    yield f'  {line}'
  for what in sorted(findings, key=lambda what: -len(findings[what])):
    indices = findings[what]
    if not len(indices):
      break
    yield f'  {len(indices):>9,} {_percent(len(indices), len(corpus)):>9}  {what}'
    for index in indices[:examples].tolist():
      ((source, target),) = corpus[index : index + 1]
      yield f'        line {index + 1}: {shown(source, _WIDTH)} | {shown(target, _WIDTH)}'


def as_json(audited: Mapping[str, Audited]) -> dict[str, dict[str, list[int]]]:
  """Returns the lines of each finding in each corpus, counted from 1."""
  content = {}
  for name, (_, _, findings) in audited.items():
    content[name] = {}
    for what, indices in findings.items():
      content[name][what] = (indices + 1).tolist()
  return content


def _percent(part: int, whole: int) -> str:
  return f'{100 * part / whole:.2f} %'
