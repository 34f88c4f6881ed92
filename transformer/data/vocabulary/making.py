"""The vocabulary that a run begins with: given by a file, kept from another run, or learned."""

import itertools
import os
from collections.abc import Iterable

from absl import logging

from transformer.data.batches.bpe_dropout import check_merges
from transformer.data.config import DataConfig
from transformer.data.vocabulary.adoption import adopt, report_adoption
from transformer.data.vocabulary.growth import grow
from transformer.data.vocabulary.vocabularies import RunVocabulary, SeparateVocabularies, is_shared
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

# The most training pairs to learn a vocabulary from, evenly drawn; all are held in memory.
VOCABULARY_PAIRS = 1_000_000
_TRIED = 500  # Training pairs whose cut by a given vocabulary is compared with that by merges.


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
               min(pairs, VOCABULARY_PAIRS), pairs)
  learned = Vocabulary.train(text(VOCABULARY_PAIRS), size, f'{key}_size', full=not earlier)
  return grow(earlier, learned, size, key) if earlier else learned
