"""Audits all the text of a config, and lays the report out for people."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from transformer.data.config import DataConfig
from transformer.data.corpora import Corpora
from transformer.data.text.sources import open_corpus
from transformer.data.vocabulary.making import make_vocabulary
from transformer.data.vocabulary.vocabularies import RunVocabulary, is_shared
from transformer.errors import UserError
from transformer.tools.audit.characters import shown
from transformer.tools.audit.findings import Findings, examine
from transformer.tools.audit.keys import first_places

_WIDTH = 44  # characters of a sentence that an example shows


def audit(config: DataConfig, vocabulary: RunVocabulary | None = None, *, origin: str = '',
          examples: int = 3) -> dict[str, Any]:
  """Reads all the text of a config once, and reports what is odd about it.

  Args:
    config: names the text, and the limits for it.
    vocabulary: cuts the text into tokens. If it is None, the vocabulary that the config names is
      read, or one is learned from the training text.
    origin: where the vocabulary is from, for the report.
    examples: how many examples of each finding are kept.

  Returns:
    JSON data:
      `data`: the settings.
      `vocabulary`: the size and origin by side, or an error.
      `corpora`: by name, the lines of the files, the two sides and the findings, or an error.
  """
  splits = {**{f'train/{name}': name for name in config.train}, **config.valid_sets,
            **({'test': config.test} if config.test else {})}
  corpora, about = {}, {}
  for name, split in splits.items():
    try:
      corpora[name] = open_corpus(config, split, aligned=False)
    except UserError as error:
      about[name] = {'error': str(error)}
  vocabulary_about = {}
  if vocabulary is None:
    try:
      vocabulary = make_vocabulary(config, Corpora(
          {name: corpus for name, corpus in corpora.items() if name.startswith('train/')}, {}))
    except UserError as error:
      vocabulary_about = {'error': str(error)}
  if vocabulary:
    files = config.source_vocabulary, config.vocabulary
    vocabulary_about = {
        side: {'size': each.size, 'from': origin or file or 'the training text'}
        for side, each, file in zip(('source', 'target'), (vocabulary.source, vocabulary.target),
                                    files, strict=True)}
    if is_shared(vocabulary):
      vocabulary_about = {'shared': vocabulary_about['target']}

  training = _TrainingText()
  for name, corpus in corpora.items():
    try:
      findings, sides, keys = examine(corpus, config, vocabulary, examples)
    except UserError as error:  # The text of a set may turn out not to be UTF-8.
      about[name] = {'error': str(error)}
      continue
    if name.startswith('train/'):
      training.add(name, keys)
      training.find_repeats(findings, len(corpus))
    else:
      training.find_overlap(findings, keys)
    lines = list(getattr(corpus, 'lines', (len(corpus),) * 2))
    about[name] = {'corpus': corpus.name, 'lines': lines, 'aligned': lines[0] == lines[1],
                   'notes': list(corpus.notes), 'pairs': len(corpus), 'sides': sides,
                   'findings': findings.as_json()}
  return {'data': dataclasses.asdict(config), 'vocabulary': vocabulary_about,
          'corpora': {name: about[name] for name in splits}}


class _TrainingText:
  """Keys of the training text; pairs are numbered through all corpora."""

  def __init__(self):
    self._names, self._firsts = [], []
    self._keys = np.zeros((3, 0), np.uint64)

  def add(self, name: str, keys: np.ndarray):
    """Adds the keys of a corpus."""
    self._names.append(name)
    self._firsts.append(self._keys.shape[1])
    self._keys = np.concatenate([self._keys, keys], axis=1) if self._keys.size else keys

  def find_repeats(self, findings: Findings, pairs: int):
    """Finds the pairs of the latest corpus that are repeated from it or from an earlier one."""
    keys = self._keys[2]
    places = first_places(keys[len(keys) - pairs:], keys)
    findings.add('the pair repeats an earlier one (data.drop_duplicates drops it, within a corpus)',
                 places < self._firsts[-1] + np.arange(pairs), note=lambda i: self._line(places[i]))

  def find_overlap(self, findings: Findings, keys: np.ndarray):
    """Finds the text of another split that is in training too."""
    for what, few, many in zip(('source', 'target', 'pair'), keys, self._keys, strict=True):
      places = first_places(few, many)
      findings.add(f'the {what} is in training too', places >= 0,
                   note=lambda i, places=places: self._line(places[i]))

  def _line(self, place: int) -> str:
    number = int(np.searchsorted(self._firsts, place, side='right')) - 1
    return f'as {self._names[number]}, line {place - self._firsts[number] + 1}'


def as_table(report: Mapping[str, Any]) -> str:
  """Returns a report as lines of text; escapes invisible characters."""
  lines = []
  for name, about in report['corpora'].items():
    lines += [*_corpus(name, about), '']
  if error := report['vocabulary'].get('error'):
    lines.append(f'vocabulary: none, {error}')
  else:
    lines += [f'{side} vocabulary: {about["size"]:,} pieces, from {about["from"]}'
              for side, about in report['vocabulary'].items()]
  return '\n'.join(lines) + '\n'


def _corpus(name: str, about: Mapping[str, Any]) -> list[str]:
  """Returns the lines about one corpus: its files, its two sides and its findings."""
  if 'error' in about:
    return [f'{name}: cannot be used: {about["error"]}']
  pairs = about['pairs']
  lines = [f'{name}: {about["corpus"]}, {pairs:,} pairs']
  if not about['aligned']:
    lines.append('  NOT ALIGNED: {:,} and {:,} lines; train.py refuses such files; the rest is '
                 'about the first {:,} lines of both'.format(*about['lines'], pairs))
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
  letters = sum(side['scripts'].values())
  parts = [f'{_share(number, letters)} {name.capitalize()}'
           for name, number in list(side['scripts'].items())[:3]]
  if side['lengths']:
    parts.append('tokens of a sentence: median {:,}, 99 % have at most {:,}, the longest {:,}'
                 .format(*side['lengths']))
  return f'  {side["language"]}: {"; ".join(parts)}'


def _share(part: int, whole: int) -> str:
  """Returns a share in per cent; only nothing is 0 %, and only everything is 100 %."""
  share = 100 * part / whole if whole else 0
  if 0 < share < 0.01:
    return '< 0.01 %'
  return '> 99.99 %' if 99.99 < share < 100 else f'{share:.2f} %'
