"""Writes text files without the training pairs that have findings."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from transformer import files
from transformer.data.config import DataConfig
from transformer.errors import UserError
from transformer.system import outputs
from transformer.tools.audit.findings import KINDS
from transformer.tools.audit.report import TRAIN, AuditedCorpus, repeats

REMOVED = 'removed.json'
SUMMARY = 'removed.txt'
_CHUNK = 20_000  # pairs per chunk
_STAYS = -1  # marks a pair that is not removed


@dataclasses.dataclass(frozen=True)
class FilteredCorpus:
  """A corpus with the reason for removing each pair.

  Attributes:
    audited: the corpus and its findings.
    reasons: the index in `KINDS` for each pair that is removed, else -1; int8 [pairs].
  """

  audited: AuditedCorpus
  reasons: np.ndarray

  @property
  def kept(self) -> int:
    """The number of pairs that are written."""
    return int(np.count_nonzero(self.reasons == _STAYS))

  @property
  def removed(self) -> dict[str, list[int]]:
    """The removed lines, from 1, by kind."""
    lines = {}
    for index, kind in enumerate(KINDS):
      indices = np.flatnonzero(self.reasons == index)
      if len(indices):
        lines[kind] = (indices + 1).tolist()
    return lines


def check_folder(folder: Path):
  """Raises `UserError` unless a folder is empty or can be created."""
  outputs.check_folder('write', folder)
  content = sorted(folder.iterdir()) if folder.exists() else []
  if content:
    raise UserError(
      f'--write needs a new or an empty folder; {folder} has {content[0].name}; choose a '
      'different one'
    )


def check_kinds(kinds: Sequence[str]):
  """Raises `UserError` for a name that is not in `KINDS`."""
  for kind in kinds:
    if kind not in KINDS:
      raise UserError(
        f'--keep must name kinds of findings, out of {", ".join(KINDS)}; got {kind}'
      )


def filter_corpora(
  audited: Mapping[str, AuditedCorpus], keep: Collection[str]
) -> dict[str, FilteredCorpus]:
  """Chooses the training pairs to remove; all validation and test pairs are kept.

  Of equal training pairs, the first one is kept, over all training corpora.

  Args:
    audited: all corpora by name, in the order of the audit.
    keep: the kinds of findings whose pairs are kept.

  Raises:
    UserError: a corpus is not aligned, or would lose all its pairs.
  """
  evaluated = []
  for name, corpus in audited.items():
    if not corpus.is_aligned:
      raise UserError(
        f'--write needs files with the same number of lines, and {corpus.corpus.name} is not '
        'aligned; add or delete the line where the report finds the shift, then rerun'
      )
    if not name.startswith(TRAIN):
      evaluated.append(corpus.keys)
  earlier = np.zeros(0, np.int64)
  filtered = {}
  for name, corpus in audited.items():
    reasons = np.full(len(corpus.corpus), _STAYS, np.int8)
    filtered[name] = FilteredCorpus(corpus, reasons)
    if not name.startswith(TRAIN):
      continue
    for kind, indices in _odd_pairs(corpus, evaluated):
      if kind not in keep:
        unexplained = indices[reasons[indices] == _STAYS]
        reasons[unexplained] = KINDS.index(kind)
    if 'repeat' not in keep:
      remaining = np.flatnonzero(reasons == _STAYS)
      keys = np.concatenate([earlier, corpus.keys['pair'][remaining]])
      is_repeat = repeats(keys)[len(earlier) :]
      reasons[remaining[is_repeat]] = KINDS.index('repeat')
      earlier = keys
    if not filtered[name].kept:
      raise UserError(
        f'--write would remove all pairs of {name}; keep some kinds of findings with '
        '--keep=KIND,KIND'
      )
  return filtered


def _odd_pairs(
  corpus: AuditedCorpus, evaluated: Sequence[Mapping[str, np.ndarray]]
) -> Iterator[tuple[str, np.ndarray]]:
  """Yields each kind with the indices of its pairs in a training corpus, except repeats.

  `evaluated` has the keys of the validation and test corpora.
  """
  for finding in corpus.findings:
    if finding.kind != 'repeat':
      yield finding.kind, finding.indices
  for part in ('pair', 'source', 'target'):
    for keys in evaluated:
      is_shared = np.isin(corpus.keys[part], keys[part])
      yield f'shared_{part}', np.flatnonzero(is_shared)


def write(
  folder: Path, filtered: Mapping[str, FilteredCorpus], config: DataConfig
) -> list[str]:
  """Writes the kept pairs as parallel files, and a report of the removed pairs.

  The folder is renamed to `folder` once it is complete.

  Returns:
    The flags for training on the folder.

  Raises:
    UserError: two corpora would have the same file names, or the folder cannot be written.
  """
  languages = (config.source_language, config.target_language)
  prefixes = {}
  for name, corpus in filtered.items():
    prefix = corpus.audited.split.replace('/', '_')
    if prefix in prefixes.values():
      raise UserError(
        f'--write would write two corpora to {prefix}.{languages[0]}; {name} is one of them; '
        'use a separate text for each'
      )
    prefixes[name] = prefix
  with files.new_folder(folder) as unfinished:
    for name, corpus in filtered.items():
      paths = [unfinished / f'{prefixes[name]}.{language}' for language in languages]
      _write_pairs(corpus, paths)
    files.write_json(unfinished / REMOVED, _as_json(filtered))
    summary = ''.join(f'{line}\n' for line in summary_lines(filtered))
    files.write(unfinished / SUMMARY, summary.encode())
  return _flags(folder, prefixes, config)


def _write_pairs(filtered: FilteredCorpus, paths: Sequence[Path]):
  """Writes the kept pairs, in order, to one file per language."""
  corpus = filtered.audited.corpus
  with (
    paths[0].open('w', encoding='utf-8', newline='') as sources,
    paths[1].open('w', encoding='utf-8', newline='') as targets,
  ):
    for first in range(0, len(corpus), _CHUNK):
      reasons = filtered.reasons[first : first + _CHUNK]
      pairs = corpus[first : first + _CHUNK]
      for reason, (source, target) in zip(reasons, pairs, strict=True):
        if reason == _STAYS:
          sources.write(_as_line(source))
          targets.write(_as_line(target))


def _as_line(text: str) -> str:
  """Returns a text with a final line feed; line feeds within it become spaces."""
  return text.replace('\n', ' ') + '\n'


def _as_json(filtered: Mapping[str, FilteredCorpus]) -> dict[str, dict]:
  """Returns the number of pairs and the removed lines of each corpus."""
  content = {}
  for name, corpus in filtered.items():
    content[name] = {
      'pairs': len(corpus.reasons),
      'written': corpus.kept,
      'removed': corpus.removed,
    }
  return content


def summary_lines(filtered: Mapping[str, FilteredCorpus]) -> Iterator[str]:
  """Yields lines with the numbers of kept and removed pairs of each corpus, by kind."""
  for name, corpus in filtered.items():
    pairs = len(corpus.reasons)
    if not name.startswith(TRAIN):
      yield f'{name}: all {pairs:,} pairs are written, even those with findings'
      continue
    yield f'{name}: {pairs:,} pairs = {corpus.kept:,} written + {pairs - corpus.kept:,} removed'
    for kind, lines in corpus.removed.items():
      yield f'  {len(lines):>9,}  {kind}'


def _flags(folder: Path, prefixes: Mapping[str, str], config: DataConfig) -> list[str]:
  """Returns the flags for training on the folder."""
  train = []
  valid = []
  test = ''
  for name, prefix in prefixes.items():
    if name.startswith(TRAIN):
      train.append(prefix)
    elif name == 'test':
      test = prefix
    else:
      valid.append(prefix)
  settings = {
    'source': 'text',
    'dir': folder,
    'train': ','.join(train),
    'valid': ','.join(valid),
    'test': test,
    'source_language': config.source_language,
    'target_language': config.target_language,
  }
  return [f'--config.data.{key}={value}' for key, value in settings.items() if value]
