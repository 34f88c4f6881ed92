r"""Looks at the text that a config names, before a run is trained on it.

  python -m transformer.data.audit --config=configs/text.py --config.data.dir=DIR
  python -m transformer.data.audit --config=configs/text.py --config.data.dir=DIR --json=FILE

Every pair of the training, validation and test text is read once. The report says where the two
sides do not belong together, what is empty, extreme, repeated, of another script or broken, how
well the vocabulary covers the text, and what of the validation and test text is in training too.
The vocabulary is one that a run has, --vocabulary=RUN/vocabulary.model, or else is learnt as
train.py would learn it. Nothing is changed. Of a pair 24 bytes are kept, and 61 while repeated
pairs are counted: 2.5 GB for 40 million.
"""

import dataclasses
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags, logging

from transformer import command_line
from transformer.config import Config
from transformer.data.audit_table import as_table
from transformer.data.checks import Example, Finding, Look, look
from transformer.data.config import DataConfig
from transformer.data.corpora import Corpora
from transformer.data.repeats import first_places, groups, repeats
from transformer.data.sources import open_corpus
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError

_CONFIG = command_line.define_config()
_VOCABULARY = flags.DEFINE_string('vocabulary', None, 'A vocabulary.model; default: learn one.')
_JSON = flags.DEFINE_string('json', None, 'Also write the report to this file; - writes it to '
                            'standard output, in place of the table.')
_EXAMPLES = flags.DEFINE_integer('examples', 3, 'How many examples of each finding are kept.')
_LINES_SHOWN = 4


def main(_):
  """Wires flags to the audit, and prints what it finds."""
  if _CONFIG.value is None:
    raise UserError('--config=configs/NAME.py is needed; it says where the text is')
  if _EXAMPLES.value < 0:
    raise UserError(f'--examples must be at least 0; got {_EXAMPLES.value}')
  config = Config.from_dict(_CONFIG.value.to_dict())
  if config.train.init_from and not _VOCABULARY.value:
    raise UserError(f'a run takes its vocabulary from train.init_from; give '
                    f'--vocabulary={config.train.init_from}/vocabulary.model')
  if _JSON.value == '':
    raise UserError('--json= names nothing; leave it out, or give it a file')
  path = Path(_JSON.value).expanduser() if _JSON.value not in (None, '-') else None
  if path and path.is_dir():
    raise UserError(f'--json must name a file; {path} is a directory')
  if path:
    command_line.check_folder('json', path.parent)
  report = audit(config.data, _VOCABULARY.value, _EXAMPLES.value)
  text = json.dumps(report, indent=2, ensure_ascii=False) + '\n'
  if path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding='utf-8', errors='backslashreplace')
  sys.stdout.reconfigure(encoding='utf-8', errors='backslashreplace')
  print(text if _JSON.value == '-' else as_table(report), end='')


def audit(config: DataConfig, vocabulary_file: str | None = None,
          examples: int = 3) -> dict[str, Any]:
  """Looks at all the text that a config names.

  Args:
    config: names the text, and the limits to hold it against.
    vocabulary_file: a saved vocabulary; None learns one from the training text.
    examples: how many of each finding are kept.

  Returns:
    JSON data: `data`, the settings; `vocabulary`; `corpora`, by name, each with the
    lines of its files, its two sides and its findings, or an error; `training`,
    findings through all training text; `overlap`, findings of validation and test.

  Raises:
    UserError: the vocabulary cannot be read.
  """
  started = time.monotonic()
  splits = {**{f'train/{name}': name for name in config.train}, 'valid': config.valid,
            'test': config.test}
  corpora, about = {}, {}
  for name, split in splits.items():
    try:
      corpora[name] = open_corpus(config, split, aligned=False)
    except UserError as error:
      about[name] = {'error': str(error)}
  train = {name: corpus for name, corpus in corpora.items() if name.startswith('train/')}
  vocabulary, vocabulary_about = _vocabulary(config, train, vocabulary_file)

  looks: dict[str, Look] = {}
  for name, corpus in corpora.items():
    logging.info('looking at %s, %s pairs', name, f'{len(corpus):,}')
    try:
      found = look(corpus, (config.source_language, config.target_language), vocabulary,
                   config.max_length, config.max_length_ratio, examples)
    except UserError as error:  # A set may turn out only now to hold what is no text.
      about[name] = {'error': str(error)}
      continue
    looks[name] = found
    lines = getattr(corpus, 'lines', (len(corpus),) * 2)
    about[name] = {
        'corpus': corpus.name, 'lines': list(lines), 'aligned': len(set(lines)) == 1,
        'notes': list(corpus.notes), 'pairs': found.pairs,
        'sides': [dataclasses.asdict(side) for side in found.sides],
        'findings': [dataclasses.asdict(finding) for finding in found.findings]}
  train = {name: corpus for name, corpus in train.items() if name in looks}
  through = _Through(train, looks, examples)
  overlap = {name: [dataclasses.asdict(finding) for finding in
                    through.overlap(corpora[name], looks[name])]
             for name in ('valid', 'test') if name in looks}
  return {
      'data': dataclasses.asdict(config), 'vocabulary': vocabulary_about,
      'corpora': {name: about[name] for name in splits},
      'training': {'pairs': through.pairs,
                   'findings': [dataclasses.asdict(finding) for finding in through.repeated()]},
      'overlap': overlap, 'seconds': round(time.monotonic() - started, 1),
      'memory_mib': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def _vocabulary(config: DataConfig, train, file: str | None):
  """A vocabulary, if there can be one, and where it comes from."""
  if file:
    vocabulary = Vocabulary.load(Path(file).expanduser())
    return vocabulary, {'from': file, 'size': vocabulary.size}
  pairs = min(config.vocabulary_pairs, sum(map(len, train.values())))
  logging.info('learning a vocabulary of %s pieces from %s pairs', f'{config.vocabulary_size:,}',
               f'{pairs:,}')
  try:
    text = Corpora(train, None).training_text(config.vocabulary_pairs)
    vocabulary = Vocabulary.train(text, config.vocabulary_size)
  except UserError as error:
    return None, {'error': str(error)}
  return vocabulary, {'from': f'{pairs:,} training pairs', 'size': vocabulary.size}


class _Through:
  """All training text, the corpora one after the other."""

  def __init__(self, train, looks: dict[str, Look], examples: int):
    self._train, self._examples = train, examples
    self._firsts = np.cumsum([0, *map(len, train.values())])
    self.pairs = int(self._firsts[-1])
    self._keys = {side: _end_to_end([getattr(looks[name].keys, side) for name in train])
                  for side in ('source', 'target', 'pair')}

  def repeated(self) -> list[Finding]:
    """Pairs that come twice, and sources that have several targets."""
    pair, source = self._keys['pair'], self._keys['source']
    again = repeats(pair)
    worst = again[:self._examples]
    firsts = first_places(pair[worst], pair)
    found = [Finding('a pair is there already', len(again), [
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

  def overlap(self, corpus, found: Look) -> list[Finding]:
    """What of another split is in training too."""
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
  """Arrays as one, without a copy if there is but one."""
  return arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, np.uint64), *arrays])


if __name__ == '__main__':
  command_line.run(main)
