"""The settings of `config.data`."""

import dataclasses
import math
import re

from transformer import plugins
from transformer.config_fields import check_ranges, config_field
from transformer.errors import UserError, short_repr

SOURCES = ('tfds', 'text')
# SentencePiece's normalization rules, which are applied before segmentation.
NORMALIZATIONS = ('identity', 'nmt_nfkc', 'nfkc', 'nmt_nfkc_cf', 'nfkc_cf')
# No whitespace except a leading U+2581, no name of a control symbol or byte, and none of the
# characters that vocabulary.py escapes or probes models with.
_SYMBOL = re.compile(
  '(?!<(pad|/?s|unk|0x[0-9A-F]{2})>$)\u2581?[^\\s\u2581\u2585\U000f2581㏙]+'
)
# 256 bytes, four control symbols, and a few characters.
SMALLEST_VOCABULARY = 264
# File names of a run's vocabularies.
SHARED_VOCABULARY = ('vocabulary.model',)
SEPARATE_VOCABULARIES = ('vocabulary.source.model', 'vocabulary.target.model')


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """The corpora to read, and how to tokenize them.

  Attributes:
    source: `tfds` for a TensorFlow Datasets translation dataset, `text` for a pair of line-aligned
      UTF-8 files per split, or MODULE:CLASS for a custom source, see docs/plugins.md.
    tfds_name: the TFDS name of the dataset, such as `wmt14_translate/de-en`; unused for text.
    dir: the folder of the dataset or of the text files. Empty is TFDS's default folder.
    train: the corpora to train on: TFDS splits, prefixes of text files, or splits of a custom
      source. Text files are named `{dir}/{prefix}.{language}`.
    passes_per_epoch: how many times an epoch uses each corpus; 0.5 uses half of the corpus,
      and the other half in the next epoch; 0 skips the corpus. Empty uses each corpus once.
    valid: the validation split or prefix, or several, such as `('news', 'talks')`. Metrics of the
      first are named `valid/bleu` and so on, and select the best checkpoint unless `train.best_by`
      names a metric of another; metrics of the others are named `valid/talks/bleu`.
    test: the split or prefix that `eval.py` scores by default.
    source_language: code of the language to translate from, as in file names or in TFDS.
    target_language: code of the language to translate into.
    shared_vocabulary: whether both languages share one vocabulary, as in the paper. If False,
      each language has a separate vocabulary, and `model.share_embeddings` must be False.
    vocabulary_size: number of SentencePiece pieces, bytes and control symbols included. With
      separate vocabularies, the size of the target vocabulary.
    source_vocabulary_size: with separate vocabularies, the size of the source vocabulary; None is
      `vocabulary_size`.
    vocabulary: a vocabulary file of `vocabulary_size` pieces to use instead of training one, such
      as the `vocabulary.model` of a run; docs/vocabulary.md shows how to convert other
      SentencePiece models. Empty trains one on the training text. With separate vocabularies, the
      target vocabulary.
    source_vocabulary: with separate vocabularies, the file of the source vocabulary.
    vocabulary_kind: the algorithm that trains a vocabulary; `unigram` is by Kudo (2018).
    split_digits: whether each digit is a separate piece.
    normalization: SentencePiece's normalization rule, applied before segmentation; `_cf` folds
      case. It must match the rule of a given `vocabulary`.
    user_defined_symbols: strings that are always one token, such as placeholders,
      `('<name>',)`; with U+2581 first, `▁<name>`, only after a space or at the start.
    max_length: maximum tokens per sentence, EOS included; also target positions per row of a
      batch.
    max_length_ratio: maximum ratio of the longer to the shorter side of a training pair, in
      tokens, EOS included. Pairs above it are dropped and counted; 0 drops none.
    augmentations: custom functions that change training sentences at each use, such as
      noise in sources or BPE-dropout. They are applied in order; each is MODULE:FUNCTION, or a
      tuple of MODULE:FUNCTION and its extra arguments; see docs/plugins.md.
  """

  source: str = 'tfds'
  tfds_name: str = 'wmt14_translate/fr-en'
  dir: str = ''
  train: tuple[str, ...] = ('train',)
  passes_per_epoch: tuple[float, ...] = ()
  valid: str | tuple[str, ...] = 'validation'
  test: str = 'test'
  source_language: str = 'en'
  target_language: str = 'fr'
  shared_vocabulary: bool = True
  vocabulary_size: int = config_field(37_000, min=SMALLEST_VOCABULARY)
  source_vocabulary_size: int | None = config_field(None, min=SMALLEST_VOCABULARY)
  vocabulary: str = ''
  source_vocabulary: str = ''
  vocabulary_kind: str = config_field('bpe', choices=('bpe', 'unigram'))
  split_digits: bool = False
  normalization: str = config_field('identity', choices=NORMALIZATIONS)
  user_defined_symbols: tuple[str, ...] = ()
  max_length: int = config_field(256, min=2)
  max_length_ratio: float = config_field(0.0, min=0)
  augmentations: tuple[plugins.Setting, ...] = ()

  @property
  def valid_sets(self) -> dict[str, str]:
    """The validation splits by the prefix of their metrics: `valid` first, then `valid/NAME`."""
    if isinstance(self.valid, str):
      return {'valid': self.valid}
    return {
      f'valid/{name}' if index else 'valid': name
      for index, name in enumerate(self.valid)
    }

  @property
  def corpus_passes(self) -> tuple[float, ...]:
    """How many times an epoch uses each corpus of `train`."""
    return self.passes_per_epoch or (1.0,) * len(self.train)

  @property
  def vocabulary_sizes(self) -> dict[str, int]:
    """The number of pieces of each vocabulary, by the setting that may name its file."""
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
        f' got {short_repr(languages)}'
      )
    for key, names in (
      ('train', self.train),
      ('valid', tuple(self.valid_sets.values())),
    ):
      if not names or not all(names) or len(set(names)) < len(names):
        raise UserError(
          f'data.{key} must name at least one corpus, and each once; got {short_repr(names)}'
        )
    passes = self.corpus_passes
    if (
      len(passes) != len(self.train)
      or min(passes) < 0
      or not 0 < sum(passes) < math.inf
    ):
      raise UserError(
        'data.passes_per_epoch must have one number per corpus of data.train, all at least 0 and '
        f'one above 0; got {short_repr(passes)}'
      )
    for symbol in self.user_defined_symbols:
      if not _SYMBOL.fullmatch(symbol) or self.user_defined_symbols.count(symbol) > 1:
        raise UserError(
          'data.user_defined_symbols must be distinct, without whitespace, and no names of '
          f'control symbols or bytes, such as </s> or <0x41>; got {short_repr(symbol)}'
        )
    if self.shared_vocabulary and (
      self.source_vocabulary or self.source_vocabulary_size
    ):
      raise UserError(
        'data.source_vocabulary and data.source_vocabulary_size are for separate vocabularies; '
        'set --config.data.shared_vocabulary=False, or remove them'
      )
