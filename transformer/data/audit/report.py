"""Audits all the text of a config into a report."""

import dataclasses
import resource
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from transformer.data.audit.findings import CorpusFindings, Example, Finding, examine
from transformer.data.config import DataConfig
from transformer.data.corpora import Corpora
from transformer.data.repeats import first_places, groups, repeats
from transformer.data.sources import open_corpus
from transformer.data.vocabularies import RunVocabulary, is_shared, make_vocabulary
from transformer.errors import UserError

_LINES_SHOWN = 4


def look_over(config: DataConfig, vocabulary: RunVocabulary | None = None, *, origin: str = '',
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
      `vocabulary`: its size and origin, by side if there are two; or an error.
      `corpora`: by name, the lines of the files, the two sides and the findings, or an error.
      `training`: findings about all training text.
      `overlap`: findings about validation and test text that is in training too.
  """
  started = time.monotonic()
  splits = {**{f'train/{name}': name for name in config.train}, **config.valid_sets,
            **({'test': config.test} if config.test else {})}
  corpora, about = {}, {}
  for name, split in splits.items():
    try:
      corpora[name] = open_corpus(config, split, aligned=False)
    except UserError as error:
      about[name] = {'error': str(error)}
  train = {name: corpus for name, corpus in corpora.items() if name.startswith('train/')}
  if vocabulary is None:
    vocabulary, vocabulary_about = _learn(config, train)
  else:
    vocabulary_about = _describe(vocabulary, {'vocabulary': origin, 'source_vocabulary': origin})

  examined: dict[str, CorpusFindings] = {}
  for name, corpus in corpora.items():
    logging.debug('looking at %s, %s pairs', name, f'{len(corpus):,}')
    try:
      found = examine(corpus, (config.source_language, config.target_language), vocabulary,
                      config.max_length, config.max_length_ratio, examples)
    except UserError as error:  # The text of a set may turn out not to be UTF-8.
      about[name] = {'error': str(error)}
      continue
    examined[name] = found
    lines = getattr(corpus, 'lines', (len(corpus),) * 2)
    about[name] = {
        'corpus': corpus.name, 'lines': list(lines), 'aligned': len(set(lines)) == 1,
        'notes': list(corpus.notes), 'pairs': found.pairs,
        'sides': [dataclasses.asdict(side) for side in found.sides],
        'findings': [dataclasses.asdict(finding) for finding in found.findings]}
  train = {name: corpus for name, corpus in train.items() if name in examined}
  training = _TrainingText(train, examined, examples)
  for name in train:  # Joined keys are copies.
    examined[name].keys = None
  overlap = {name: [dataclasses.asdict(finding) for finding in
                    training.overlap(corpora[name], examined[name])]
             for name in examined if not name.startswith('train/')}
  return {
      'data': dataclasses.asdict(config), 'vocabulary': vocabulary_about,
      'corpora': {name: about[name] for name in splits},
      'training': {'pairs': training.pairs,
                   'findings': [dataclasses.asdict(finding) for finding in training.repeated()]},
      'overlap': overlap, 'seconds': round(time.monotonic() - started, 1),
      'memory_mib': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def _learn(config: DataConfig, train):
  """Returns a vocabulary or None, and its size and origin or an error."""
  corpora = Corpora(train, {})
  try:
    vocabulary = make_vocabulary(config, corpora)
  except UserError as error:
    return None, {'error': str(error)}
  pairs = min(config.vocabulary_pairs, sum(map(len, train.values())))
  return vocabulary, _describe(vocabulary, {
      key: getattr(config, key) or f'{pairs:,} training pairs' for key in config.sizes})


def _describe(vocabulary: RunVocabulary, origins: Mapping[str, str]) -> dict[str, Any]:
  """Returns the size and origin of a vocabulary, by side if there are two."""
  target = {'from': origins['vocabulary'], 'size': vocabulary.target.size}
  if is_shared(vocabulary):
    return target
  return {'source': {'from': origins['source_vocabulary'], 'size': vocabulary.source.size},
          'target': target}


class _TrainingText:
  """All training text; pairs are numbered through all corpora."""

  def __init__(self, train, examined: dict[str, CorpusFindings], examples: int):
    self._train, self._examples = train, examples
    self._firsts = np.cumsum([0, *map(len, train.values())])
    self.pairs = int(self._firsts[-1])
    self._keys = {side: _end_to_end([getattr(examined[name].keys, side) for name in train])
                  for side in ('source', 'target', 'pair')}

  def repeated(self) -> list[Finding]:
    """Returns findings about repeated pairs, and sources with several targets."""
    pair, source = self._keys['pair'], self._keys['source']
    again = repeats(pair)
    worst = again[:self._examples]
    firsts = first_places(pair[worst], pair)
    found = [Finding('a pair repeats an earlier one', len(again), [
        self._example(place, f'as {self._line(first)}')
        for place, first in zip(worst, firsts, strict=True)])]
    new = np.ones(len(pair), bool)
    new[again] = False
    different = np.flatnonzero(new)
    several = groups(source[different], self._examples)
    examples = []
    for members in several.largest:
      places = different[members]
      lines = ', '.join(self._line(place) for place in places[1:_LINES_SHOWN])
      examples.append(self._example(
          places[0], f'{len(places):,} targets, also {lines}{" …" * (len(places) > _LINES_SHOWN)}'))
    found.append(Finding('a source has several targets', several.members, examples))
    return found

  def overlap(self, corpus, found: CorpusFindings) -> list[Finding]:
    """Returns findings about the text of another split that is in training too."""
    findings = []
    for what, side in (('pair', 'pair'), ('source', 'source'), ('target', 'target')):
      places = first_places(getattr(found.keys, side), self._keys[side])
      inside = np.flatnonzero(places >= 0)
      findings.append(Finding(f'the {what} is in training too', len(inside), [
          Example(int(i) + 1, f'as {self._line(places[i])}', *corpus[i])
          for i in inside[:self._examples]]))
    return findings

  def _corpus_of(self, place) -> tuple[str, int]:
    number = int(np.searchsorted(self._firsts, place, side='right')) - 1
    return list(self._train)[number], int(place - self._firsts[number])

  def _line(self, place) -> str:
    name, index = self._corpus_of(place)
    return f'line {index + 1}' if len(self._train) == 1 else f'{name} line {index + 1}'

  def _example(self, place, note) -> Example:
    name, index = self._corpus_of(place)
    if len(self._train) > 1:
      note = f'of {name}, {note}'
    return Example(index + 1, note, *self._train[name][index])


def _end_to_end(arrays: list[np.ndarray]) -> np.ndarray:
  """Joins arrays; a lone array is not copied."""
  return arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, np.uint64), *arrays])
