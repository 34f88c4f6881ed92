"""Audits all corpora of a config, and formats a human-readable report."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from transformer.data.config import DataConfig
from transformer.data.corpora import Corpora
from transformer.data.text.sources import Corpus, open_corpus
from transformer.data.text.text_files import TextCorpus
from transformer.data.vocabulary.building import build_vocabulary
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.errors import UserError
from transformer.tools.audit.characters import printable
from transformer.tools.audit.findings import Finding, IsForeign, Side, find_problems

# Prefix of the names of training corpora in the report.
TRAIN = 'train/'
_WIDTH = 44  # maximum characters of a sentence in an example
_PERCENTILES = (50, 99, 100)


class AuditedCorpus(NamedTuple):
  """A corpus with its findings.

  Attributes:
    split: the name of the corpus in the config.
    corpus: the pairs; files with different numbers of lines are truncated to the shorter one.
    about: lines of the report about the files and the two languages.
    findings: the findings in the order of `findings.KINDS`.
    keys: int64 [pairs] of the `source`, the `target` and the `pair`; equal for equal text.
  """

  split: str
  corpus: Corpus
  about: list[str]
  findings: list[Finding]
  keys: dict[str, np.ndarray]

  @property
  def is_aligned(self) -> bool:
    """Whether both files have the same number of lines."""
    return len(set(getattr(self.corpus, 'lines', ()))) < 2


def audit(
  config: DataConfig,
  earlier: RunVocabulary | None = None,
  is_foreign: IsForeign | None = None,
) -> Iterator[tuple[str, AuditedCorpus]]:
  """Reads all corpora of a config once; yields the name and the findings of each corpus.

  Training pairs are compared with earlier training pairs, and validation and test pairs with all
  training pairs.

  Args:
    config: the corpora, and the limits on length.
    earlier: the vocabulary of `train.init_from`, if set. The audit uses the same vocabulary as
      training.
    is_foreign: whether a line is in another language; by default, languages are not identified.

  Raises:
    UserError: a training corpus cannot be read.
  """
  train = {f'{TRAIN}{split}': _open(config, split) for split in config.train}
  vocabulary = build_vocabulary(config, Corpora(train, {}), earlier)
  keys = []
  for split, (name, corpus) in zip(config.train, train.items(), strict=True):
    examined = find_problems(corpus, config, vocabulary, is_foreign)
    audited = _audited(split, corpus, *examined)
    keys.append(audited.keys)
    is_repeat = repeats(_joined(keys, 'pair'))
    first = len(is_repeat) - len(corpus)
    indices = np.flatnonzero(is_repeat[first:])
    repeated = Finding('repeat', 'the pair repeats an earlier one', indices)
    audited.findings.append(repeated)
    yield name, audited
  splits = dict(config.valid_sets)
  if config.test:
    splits['test'] = config.test
  for name, split in splits.items():
    try:
      corpus = _open(config, split)
    except UserError as error:
      logging.warning('%s is not audited: %s', name, error)
      continue
    examined = find_problems(corpus, config, vocabulary, is_foreign)
    audited = _audited(split, corpus, *examined)
    for part, part_keys in audited.keys.items():
      in_training = np.flatnonzero(np.isin(part_keys, _joined(keys, part)))
      text = f'the {part} is in training too'
      audited.findings.append(Finding(f'shared_{part}', text, in_training))
    yield name, audited


def _audited(
  split: str,
  corpus: Corpus,
  findings: list[Finding],
  sides: list[Side],
  keys: dict[str, np.ndarray],
) -> AuditedCorpus:
  return AuditedCorpus(split, corpus, _describe(corpus, sides), findings, keys)


def _joined(keys: list[dict[str, np.ndarray]], part: str) -> np.ndarray:
  """Returns the keys of the sources, the targets or the pairs of all training corpora."""
  return np.concatenate([of_corpus[part] for of_corpus in keys])


def _open(config: DataConfig, split: str) -> Any:
  """Opens a corpus; its files may have different numbers of lines."""
  if config.source == 'text':
    return TextCorpus(config, split, aligned=False)
  return open_corpus(config, split)


def repeats(keys: np.ndarray) -> np.ndarray:
  """Returns which keys occurred earlier, bool [keys]."""
  repeats = np.ones(len(keys), bool)
  _, first_places = np.unique(keys, return_index=True)
  repeats[first_places] = False
  return repeats


def _describe(corpus: Corpus, sides: list[Side]) -> list[str]:
  """Returns the report's lines about the files and the sides of a corpus."""
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
  """Returns the line about a language: most frequent scripts, and sentence lengths."""
  parts = []
  letters = side.letters.total()
  for script, count in side.letters.most_common(3):
    parts.append(f'{_percent(count, letters)} {script.capitalize()}')
  tokens = side.columns().tokens
  median, p99, longest = np.percentile(tokens, _PERCENTILES, method='inverted_cdf')
  parts.append(
    f'tokens of a sentence: median {median:,}, 99% have at most {p99:,}, '
    f'the longest {longest:,}'
  )
  return f'{side.language}: {"; ".join(parts)}'


def report_lines(name: str, audited: AuditedCorpus, examples: int) -> Iterator[str]:
  """Yields the report's lines about a corpus, most frequent findings first.

  Invisible characters are escaped. Each finding has the first `examples` lines, numbered from 1.
  """
  corpus = audited.corpus
  yield f'{name}: {corpus.name}, {len(corpus):,} pairs'
  for line in audited.about:
    yield f'  {line}'
  commonest = sorted(audited.findings, key=lambda finding: -len(finding.indices))
  for kind, text, indices in commonest:
    if not len(indices):
      break
    share = _percent(len(indices), len(corpus))
    yield f'  {len(indices):>9,} {share:>9}  {kind:13}  {text}'
    for index in indices[:examples].tolist():
      ((source, target),) = corpus[index : index + 1]
      yield f'        line {index + 1}: {printable(source, _WIDTH)} | {printable(target, _WIDTH)}'


def as_json(audited: Mapping[str, AuditedCorpus]) -> dict[str, dict[str, list[int]]]:
  """Returns the lines of each finding in each corpus, numbered from 1."""
  content = {}
  for name, of_corpus in audited.items():
    content[name] = {}
    for _, text, indices in of_corpus.findings:
      content[name][text] = (indices + 1).tolist()
  return content


def _percent(part: int, whole: int) -> str:
  return f'{100 * part / whole:.2f}%'
