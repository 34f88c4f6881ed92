"""The vocabulary of a run: one for both languages, or one for each.

Both kinds have the attributes `source` and `target`, the `Vocabulary` of each side. A run keeps
the SentencePiece models as files:

| `data.shared_vocabulary` | files |
| --- | --- |
| True | `vocabulary.model` |
| False | `vocabulary.source.model`, `vocabulary.target.model` |
"""

import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from absl import logging

from transformer.data.bpe_merges import check_merges
from transformer.data.config import SEPARATE_VOCABULARIES, SHARED_VOCABULARY, DataConfig
from transformer.data.vocabulary import Vocabulary
from transformer.data.vocabulary_adoption import adopt, report_adoption
from transformer.data.vocabulary_growth import grow
from transformer.errors import UserError

_TRIED = 500  # Training pairs whose cut by a given vocabulary is compared with that by merges.


class SeparateVocabularies(NamedTuple):
  """A vocabulary for each language.

  Attributes:
    source: encodes sources.
    target: encodes and decodes targets.
  """

  source: Vocabulary
  target: Vocabulary


RunVocabulary = Vocabulary | SeparateVocabularies


def is_shared(vocabulary: RunVocabulary) -> bool:
  """Returns whether one vocabulary serves both languages."""
  return vocabulary.source is vocabulary.target


def model_files(vocabulary: RunVocabulary) -> dict[str, bytes]:
  """Returns the SentencePiece models by the names of their files."""
  return {name: each.model_bytes for name, each in _by_file(vocabulary).items()}


def pieces_of(vocabulary: RunVocabulary) -> tuple[list[str], list[str]]:
  """Returns the pieces of the source's and of the target's vocabulary, by id."""
  source, target = ([each.piece(token) for token in range(each.size)]
                    for each in (vocabulary.source, vocabulary.target))
  return source, target


def fingerprints(vocabulary: RunVocabulary) -> dict[str, str]:
  """Returns the SHA-256 of each model, by the name of its file without `.model`."""
  return {_name(file): each.fingerprint for file, each in _by_file(vocabulary).items()}


def from_model_files(models: Mapping[str, bytes], place: str) -> RunVocabulary:
  """Returns the vocabulary of such models: the reverse of `model_files`.

  Args:
    models: serialised SentencePiece models by the names of their files.
    place: where they come from, for error messages.

  Raises:
    UserError: the names are not those of a shared vocabulary or of two, or a model cannot be
      used, see `Vocabulary.from_bytes`.
  """
  for names in (SHARED_VOCABULARY, SEPARATE_VOCABULARIES):
    if models.keys() == set(names):
      return _joined([Vocabulary.from_bytes(models[name], f'{name} of {place}') for name in names])
  raise UserError(f'{place} should hold {SHARED_VOCABULARY[0]}, or '
                  f'{" and ".join(SEPARATE_VOCABULARIES)}; it holds '
                  f'{" and ".join(models) or "neither"}; restore it from a copy')


def save(vocabulary: RunVocabulary, folder: str | os.PathLike):
  """Writes the files of a vocabulary into a folder, each atomically."""
  for name, each in _by_file(vocabulary).items():
    each.save(Path(folder, name))


def is_saved(folder: str | os.PathLike) -> bool:
  """Returns whether a folder has all files of a vocabulary."""
  return any(all(Path(folder, name).exists() for name in names)
             for names in (SHARED_VOCABULARY, SEPARATE_VOCABULARIES))


def load(folder: str | os.PathLike, wanted: Mapping[str, str] | None = None) -> RunVocabulary:
  """Reads the vocabulary of a run.

  Args:
    folder: the run's directory.
    wanted: SHA-256 of the models, as `fingerprints` names them; other entries do not count.
      None reads what is there.

  Raises:
    UserError: a file is missing or damaged, or has another SHA-256.
  """
  if wanted is None:
    separate = Path(folder, SEPARATE_VOCABULARIES[0]).exists()
  else:
    separate = _name(SEPARATE_VOCABULARIES[0]) in wanted
  return _joined([Vocabulary.load(Path(folder, name), wanted and wanted.get(_name(name), ''))
                  for name in (SEPARATE_VOCABULARIES if separate else SHARED_VOCABULARY)])


def _by_file(vocabulary: RunVocabulary) -> dict[str, Vocabulary]:
  if is_shared(vocabulary):
    return {SHARED_VOCABULARY[0]: vocabulary.source}
  return dict(zip(SEPARATE_VOCABULARIES, (vocabulary.source, vocabulary.target), strict=True))


def _name(file: str) -> str:
  return file.removesuffix('.model')


def _joined(loaded: list[Vocabulary]) -> RunVocabulary:
  return loaded[0] if len(loaded) == 1 else SeparateVocabularies(*loaded)


def check_same(own: RunVocabulary, config: DataConfig, keys: Iterable[str]):
  """Refuses files that a config names if they hold another vocabulary than a run's own.

  A file that is gone does not matter, since the run has a copy.

  Args:
    own: the run's vocabulary.
    config: names the files.
    keys: the settings to look at: `vocabulary` and `source_vocabulary`, or one of them.

  Raises:
    UserError: names the first such setting.
  """
  for key in keys:
    path = getattr(config, key)
    if not path or not os.path.exists(os.path.expanduser(path)):
      continue
    wanted = own.source if key == 'source_vocabulary' else own.target
    if adopt(path).vocabulary.fingerprint != wanted.fingerprint:
      raise UserError(f'data.{key}={path} holds another vocabulary than the run, which keeps its '
                      f'own; leave data.{key} as it was, or choose another --workdir')


def make_vocabulary(config: DataConfig, corpora,
                    earlier: RunVocabulary | None = None) -> RunVocabulary:
  """Loads the vocabularies that a config names, and makes the others for the training text.

  Args:
    config: says whether the languages share a vocabulary, its size and its files.
    corpora: the training text, a `Corpora`.
    earlier: the vocabulary of `train.init_from`, which is kept, and grows to the size.

  Raises:
    UserError: a file cannot be used or has another size than the config; the earlier
      vocabulary is larger, or of the other kind; or the text is too small for the size.
  """
  if earlier is not None and config.shared_vocabulary != is_shared(earlier):
    raise UserError(f'a run takes its vocabulary from train.init_from; set '
                    f'--config.data.shared_vocabulary={is_shared(earlier)}; got '
                    f'{config.shared_vocabulary}')
  if config.shared_vocabulary:
    return _make(config, corpora, 'vocabulary', slice(None), earlier)
  source, target = earlier or (None, None)
  return SeparateVocabularies(
      _make(config, corpora, 'source_vocabulary', slice(0, None, 2), source),
      _make(config, corpora, 'vocabulary', slice(1, None, 2), target))


def _make(config: DataConfig, corpora, key: str, lines: slice,
          earlier: Vocabulary | None) -> Vocabulary:
  """Returns the vocabulary of a key of the config; learns it from a slice of the text if needed."""
  def text(pairs):
    return itertools.islice(corpora.training_text(pairs), lines.start, lines.stop, lines.step)

  def tried():
    return itertools.islice(text(_TRIED), 2 * _TRIED)

  size, path = config.sizes[key], getattr(config, key)
  if path:
    adopted = adopt(path)
    given = adopted.vocabulary
    if given.size != size:
      raise UserError(f'a run takes its vocabulary from data.{key}; set '
                      f'--config.data.{key}_size={given.size}; got {size}')
    if config.bpe_dropout:
      check_merges(given, tried(), f'data.{key}')
    report_adoption(adopted, tried(), key)
    return given
  known = earlier.size if earlier else 0
  if earlier and config.bpe_dropout:
    check_merges(earlier, tried(), 'that of train.init_from')
  if size == known:
    return earlier
  if size < known:
    raise UserError(f'a run keeps the vocabulary of train.init_from; set '
                    f'--config.data.{key}_size to {known}, or to more to add pieces; got {size}')
  pairs = sum(map(len, corpora.train.values()))
  logging.info('training a %s of %d pieces%s on %d of %d pairs', key.replace('_', ' '), size,
               f', {size - known} of them new,' if earlier else '',
               min(pairs, config.vocabulary_pairs), pairs)
  learned = Vocabulary.train(text(config.vocabulary_pairs), size, f'{key}_size', full=not earlier)
  return grow(earlier, learned, size, key) if earlier else learned
