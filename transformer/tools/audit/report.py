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
from transformer.tools.audit.findings import examine

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
  splits = {
    **{f'train/{name}': name for name in config.train},
    **config.valid_sets,
    **({'test': config.test} if config.test else {}),
  }
  corpora, missing, about = {}, {}, {}
  for name, split in splits.items():
    try:
      corpora[name] = (
        TextCorpus(config, split, aligned=False)
        if config.source == 'text'
        else open_corpus(config, split)
      )
    except UserError as error:
      if name.startswith('train/'):
        raise
      missing[name] = str(error)
  if vocabulary is None:
    vocabulary = make_vocabulary(
      config,
      Corpora({name: corpus for name, corpus in corpora.items() if name.startswith('train/')}, {}),
    )
  starts, known = {}, np.zeros((3, 0), np.uint64)  # Training's pairs, numbered through.

  def line(number: int) -> str:
    name = max((name for name in starts if starts[name] <= number), key=starts.get)
    return f'as {name}, line {number - starts[name] + 1}'

  for name, corpus in corpora.items():
    findings, sides, keys = examine(corpus, config, vocabulary, examples)
    if name.startswith('train/'):
      starts[name] = first = known.shape[1]
      known = np.concatenate([known, keys], axis=1)
      places = first_places(keys[2], known[2])
      findings.add(
        'the pair repeats an earlier one',
        places < first + np.arange(len(places)),
        note=lambda i, places=places: line(places[i]),
      )
    else:
      for what, few, many in zip(('source', 'target', 'pair'), keys, known, strict=True):
        places = first_places(few, many)
        findings.add(
          f'the {what} is in training too',
          places >= 0,
          note=lambda i, places=places: line(places[i]),
        )
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
  sides = (
    {'shared': vocabulary.target}
    if is_shared(vocabulary)
    else {'source': vocabulary.source, 'target': vocabulary.target}
  )
  named = {'source': config.source_vocabulary}
  return {
    'data': dataclasses.asdict(config),
    'corpora': about,
    'missing': missing,
    'vocabulary': {
      side: {
        'size': own.size,
        'from': origin or named.get(side, config.vocabulary) or 'the training text',
      }
      for side, own in sides.items()
    },
  }


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
    lines += [*_corpus(name, about), '']
  lines += [f'{name}: NOT READ: {why}\n' for name, why in report['missing'].items()]
  lines += [
    f'{side} vocabulary: {about["size"]:,} pieces, from {about["from"]}'
    for side, about in report['vocabulary'].items()
  ]
  return '\n'.join(lines) + '\n'


def _corpus(name: str, about: Mapping[str, Any]) -> list[str]:
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
  letters = sum(side['scripts'].values())
  parts = [
    f'{_share(number, letters)} {name.capitalize()}'
    for name, number in list(side['scripts'].items())[:3]
  ]
  if side['lengths']:
    parts.append(
      'tokens of a sentence: median {:,}, 99 % have at most {:,}, the longest {:,}'.format(
        *side['lengths']
      )
    )
  return f'  {side["language"]}: {"; ".join(parts)}'


def _share(part: int, whole: int) -> str:
  return f'{100 * part / whole if whole else 0:.2f} %'
