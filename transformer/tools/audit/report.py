"""Audits all the text of a config, and lays the report out for people."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from transformer.data.config import DataConfig
from transformer.data.corpora import Corpora
from transformer.data.text.sources import open_corpus
from transformer.data.text.text_files import TextCorpus
from transformer.data.vocabulary.making import make_vocabulary
from transformer.data.vocabulary.vocabularies import RunVocabulary, is_shared
from transformer.errors import UserError
from transformer.tools.audit.characters import shown
from transformer.tools.audit.findings import Findings, examine

_WIDTH = 44  # characters of a sentence that an example shows


def audit(
  config: DataConfig,
  vocabulary: RunVocabulary | None = None,
  *,
  origin: str = '',
  examples: int = 3,
) -> dict[str, Any]:
  """Reads all the text of a config once, and reports what is odd about it.

  Without a vocabulary, the one that the config names is read, or one is learned from the training
  text; `origin` is where it is from. Returns JSON data; `missing` is why a split was not read.
  """
  corpora, missing = _open(config)
  if vocabulary is None:
    training = {name: corpora[name] for name in corpora if _is_training(name)}
    vocabulary = make_vocabulary(config, Corpora(training, {}))
  about = {}
  known = _Known()
  for name, corpus in corpora.items():
    findings, sides, keys = examine(corpus, config, vocabulary, examples)
    if _is_training(name):
      known.add(name, keys, findings)
    else:
      known.find(keys, findings)
    lines = list(getattr(corpus, 'lines', (len(corpus),) * 2))
    about[name] = {
      'corpus': corpus.name,
      'lines': lines,
      'aligned': lines[0] == lines[1],
      'notes': list(corpus.notes),
      'pairs': len(corpus),
      'sides': sides,
      'findings': findings.as_json(),
    }
  return {
    'data': dataclasses.asdict(config),
    'corpora': about,
    'missing': missing,
    'vocabulary': _about_vocabulary(vocabulary, config, origin),
  }


def _open(config: DataConfig) -> tuple[dict[str, Any], dict[str, str]]:
  """Opens the corpora of a config; returns them, and why others cannot be read, by name."""
  splits = {f'train/{name}': name for name in config.train} | config.valid_sets
  if config.test:
    splits['test'] = config.test
  corpora = {}
  missing = {}
  for name, split in splits.items():
    try:
      if config.source == 'text':
        corpora[name] = TextCorpus(config, split, aligned=False)
      else:
        corpora[name] = open_corpus(config, split)
    except UserError as error:
      if _is_training(name):
        raise
      missing[name] = str(error)
  return corpora, missing


def _is_training(name: str) -> bool:
  return name.startswith('train/')


def _about_vocabulary(
  vocabulary: RunVocabulary, config: DataConfig, origin: str
) -> dict[str, dict[str, Any]]:
  """Returns the size and the origin of each vocabulary."""
  of_target = {
    'size': vocabulary.target.size,
    'from': origin or config.vocabulary or 'the training text',
  }
  if is_shared(vocabulary):
    return {'shared': of_target}
  of_source = {
    'size': vocabulary.source.size,
    'from': origin or config.source_vocabulary or 'the training text',
  }
  return {'source': of_source, 'target': of_target}


class _Known:
  """The sources, targets and pairs of the training text, numbered through its corpora."""

  def __init__(self):
    self._keys = np.zeros((3, 0), np.uint64)
    self._starts: dict[str, int] = {}

  def add(self, name: str, keys: np.ndarray, findings: Findings):
    """Adds a corpus by the keys of its sides and pairs, and finds its repeated pairs."""
    first = self._keys.shape[1]
    self._starts[name] = first
    self._keys = np.concatenate([self._keys, keys], axis=1)
    places = first_places(keys[2], self._keys[2])
    repeats = places < first + np.arange(len(places))
    findings.add(
      'the pair repeats an earlier one', repeats, lambda i: self._line(places[i])
    )

  def find(self, keys: np.ndarray, findings: Findings):
    """Finds the sides and pairs of other text that are known."""
    for what, few, many in zip(
      ('source', 'target', 'pair'), keys, self._keys, strict=True
    ):
      places = first_places(few, many)
      findings.add(
        f'the {what} is in training too',
        places >= 0,
        lambda i, places=places: self._line(places[i]),
      )

  def _line(self, number: int) -> str:
    """Returns where the pair of a number stands, for people."""
    begun = [name for name, start in self._starts.items() if start <= number]
    name = max(begun, key=self._starts.get)
    return f'as {name}, line {number - self._starts[name] + 1}'


def first_places(few: np.ndarray, many: np.ndarray) -> np.ndarray:
  """Returns, for each key of `few`, its first index in `many`, or −1; int64 [few]."""
  if not len(many):
    return np.full(len(few), -1)
  known, firsts = np.unique(many, return_index=True)
  nearest = np.minimum(np.searchsorted(known, few), len(known) - 1)
  return np.where(known[nearest] == few, firsts[nearest], -1)


def as_table(report: Mapping[str, Any]) -> str:
  """Returns a report as lines of text; escapes invisible characters."""
  lines = []
  for name, about in report['corpora'].items():
    lines += _corpus(name, about)
    lines.append('')
  for name, why in report['missing'].items():
    lines.append(f'{name}: NOT READ: {why}\n')
  for side, about in report['vocabulary'].items():
    lines.append(f'{side} vocabulary: {about["size"]:,} pieces, from {about["from"]}')
  return '\n'.join(lines) + '\n'


def _corpus(name: str, about: Mapping[str, Any]) -> list[str]:
  """Returns the lines of a report about a corpus: its sides, then its findings with examples."""
  pairs = about['pairs']
  lines = [f'{name}: {about["corpus"]}, {pairs:,} pairs']
  if not about['aligned']:
    lines.append(
      '  NOT ALIGNED: {:,} and {:,} lines; train.py refuses such files; the rest is '
      'about the first {:,} lines of both'.format(*about['lines'], pairs)
    )
  lines += [f'  {note}' for note in about['notes']]
  lines += [_side(side) for side in about['sides'] if pairs]
  for finding in about['findings']:
    if finding['count']:
      share = _share(finding['count'], pairs)
      lines.append(f'  {finding["count"]:>9,} {share:>9}  {finding["what"]}')
    for example in finding['examples']:
      note = f' ({example["note"]})' if example['note'] else ''
      text = ' | '.join(shown(example[side], _WIDTH) for side in ('source', 'target'))
      lines.append(f'        line {example["line"]}{note}: {text}')
  return lines


def _side(side: Mapping[str, Any]) -> str:
  """Returns the line about a language: its commonest scripts, and the lengths of its sentences."""
  letters = sum(side['scripts'].values())
  commonest = list(side['scripts'].items())[:3]
  parts = [
    f'{_share(number, letters)} {name.capitalize()}' for name, number in commonest
  ]
  if side['lengths']:
    lengths = (
      'tokens of a sentence: median {:,}, 99 % have at most {:,}, the longest {:,}'
    )
    parts.append(lengths.format(*side['lengths']))
  return f'  {side["language"]}: {"; ".join(parts)}'


def _share(part: int, whole: int) -> str:
  """Returns a part of a whole in percent."""
  return f'{100 * part / whole if whole else 0:.2f} %'
