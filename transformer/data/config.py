"""The settings of `config.data`."""

import dataclasses
import math
import re

from transformer import own_code
from transformer.errors import UserError, shown
from transformer.settings import check_ranges, setting

SOURCES = ('tfds', 'text')
# What text becomes before it is cut, as SentencePiece names it.
NORMALISATIONS = ('identity', 'nmt_nfkc', 'nfkc', 'nmt_nfkc_cf', 'nfkc_cf')
# No white space but U+2581 first, no name of a control symbol or byte, and none of the characters
# that are escaped or that a vocabulary is probed with.
_SYMBOL = re.compile(
  '(?!<(pad|/?s|unk|0x[0-9A-F]{2})>$)\u2581?[^\\s\u2581\u2585\U000f2581㏙]+'
)
# 256 bytes, four control symbols, and a few characters.
SMALLEST_VOCABULARY = 264
# The names of a run's vocabulary files.
SHARED_VOCABULARY = ('vocabulary.model',)
SEPARATE_VOCABULARIES = ('vocabulary.source.model', 'vocabulary.target.model')


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """The text to read, and how to cut it into tokens.

  Attributes:
    source: `tfds` for a TensorFlow Datasets translation set, `text` for a pair of line-aligned
      UTF-8 files per split, or MODULE:CLASS for a source of your own, see docs/own-parts.md.
    name: the set's TFDS name, such as `wmt14_translate/de-en`; unused for text.
    dir: the folder of the set or of the files. Empty means TFDS's own default.
    train: the corpora to train on: TFDS splits, prefixes of files, or names that your own source
      understands. The files of text are `{dir}/{prefix}.{language}`.
    train_weights: for each corpus, how many times an epoch uses it; 0.5 uses half of the corpus,
      and the other half in the next epoch; 0 leaves it out. Empty means once each.
    valid: the split, or prefix, that chooses checkpoints; or several, such as
      `('news', 'talks')`. The first is evaluated as `valid/bleu` and so on, and chooses checkpoints
      unless `train.best_by` names another; the others as `valid/talks/bleu`.
    test: the split, or prefix, that `eval.py` scores by default.
    source_language: code of the language to translate from, as in names of files or in TFDS.
    target_language: code of the language to translate into.
    shared_vocabulary: whether both languages share a vocabulary, as in the paper. Otherwise
      each has its own, and `model.share_embeddings` must be False.
    vocabulary_size: number of SentencePiece pieces, bytes and control symbols included; of the
      target's vocabulary if they are separate.
    source_vocabulary_size: likewise of the source's; None is `vocabulary_size`.
    vocabulary: a vocabulary of `vocabulary_size` pieces to use instead of a new one, such as the
      `vocabulary.model` of a run; docs/vocabulary.md says how other SentencePiece models are
      converted. Empty trains one on the training text. It is the target's if they are separate.
    source_vocabulary: likewise the source's.
    vocabulary_kind: how a vocabulary is learned; `unigram` is by Kudo (2018).
    split_digits: whether each digit is a piece of its own.
    normalisation: what SentencePiece makes of text before it is cut; `_cf` folds case. A given
      `vocabulary` has its own, which this must name.
    symbols: texts that stay one token wherever they occur, such as placeholders, `('<name>',)`;
      with U+2581 first, `▁<name>`, only after a space or at the start.
    max_length: the most tokens of a sentence, end token included. A row of a batch has as
      many target positions.
    max_length_ratio: the largest ratio of the lengths of a training pair's two sides, at least 1,
      in tokens, end tokens included. Pairs above it are dropped and counted; 0 drops none.
    variations: your own functions that change training sentences at each use, such as noise in
      sources or BPE-dropout, one after the other: for each MODULE:FUNCTION, or a tuple of that
      and the numbers that it takes; see docs/own-parts.md.
  """

  source: str = 'tfds'
  name: str = 'wmt14_translate/fr-en'
  dir: str = ''
  train: tuple[str, ...] = ('train',)
  train_weights: tuple[float, ...] = ()
  valid: str | tuple[str, ...] = 'validation'
  test: str = 'test'
  source_language: str = 'en'
  target_language: str = 'fr'
  shared_vocabulary: bool = True
  vocabulary_size: int = setting(37_000, least=SMALLEST_VOCABULARY)
  source_vocabulary_size: int | None = setting(None, least=SMALLEST_VOCABULARY)
  vocabulary: str = ''
  source_vocabulary: str = ''
  vocabulary_kind: str = setting('bpe', choices=('bpe', 'unigram'))
  split_digits: bool = False
  normalisation: str = setting('identity', choices=NORMALISATIONS)
  symbols: tuple[str, ...] = ()
  max_length: int = setting(256, least=2)
  max_length_ratio: float = setting(0.0, least=0)
  variations: tuple[own_code.Setting, ...] = ()

  @property
  def valid_sets(self) -> dict[str, str]:
    """The validation sets by the beginning of their metrics' names, the deciding one first."""
    if isinstance(self.valid, str):
      return {'valid': self.valid}
    return {
      f'valid/{name}' if number else 'valid': name
      for number, name in enumerate(self.valid)
    }

  @property
  def weights(self) -> tuple[float, ...]:
    """How many times an epoch uses each corpus of `train`."""
    return self.train_weights or (1.0,) * len(self.train)

  @property
  def sizes(self) -> dict[str, int]:
    """The number of pieces of each vocabulary, by the key that may name its file."""
    if self.shared_vocabulary:
      return {'vocabulary': self.vocabulary_size}
    return {
      'source_vocabulary': self.source_vocabulary_size or self.vocabulary_size,
      'vocabulary': self.vocabulary_size,
    }

  def __post_init__(self):
    check_ranges(self, 'data.')
    if self.source == 'text' and not self.dir:
      raise UserError(
        'data.dir must name the folder of the text files; set --config.data.dir'
      )
    languages = self.source_language, self.target_language
    if not all(languages) or len(set(languages)) < 2:
      raise UserError(
        f'data.source_language and data.target_language must both be set, and differ;'
        f' got {shown(languages)}'
      )
    for key, names in (
      ('train', self.train),
      ('valid', tuple(self.valid_sets.values())),
    ):
      if not names or not all(names) or len(set(names)) < len(names):
        raise UserError(
          f'data.{key} must name at least one corpus, and each once; got {shown(names)}'
        )
    weights = self.weights
    if (
      len(weights) != len(self.train)
      or min(weights) < 0
      or not 0 < sum(weights) < math.inf
    ):
      raise UserError(
        f'data.train_weights must hold a weight for each corpus of data.train, at least 0 and one '
        f'of them above 0; got {shown(weights)}'
      )
    for symbol in self.symbols:
      if not _SYMBOL.fullmatch(symbol) or self.symbols.count(symbol) > 1:
        raise UserError(
          f'data.symbols must hold texts without white space, each once, and no names'
          f' of control symbols or bytes, such as </s> or <0x41>; got '
          f'{shown(symbol)}'
        )
    if self.shared_vocabulary and (
      self.source_vocabulary or self.source_vocabulary_size
    ):
      raise UserError(
        'data.source_vocabulary and data.source_vocabulary_size are for languages '
        'with a vocabulary each; set --config.data.shared_vocabulary=False, or leave '
        'them out'
      )
