"""What `config.data` holds."""

import dataclasses

from transformer.errors import UserError

SOURCES = ('tfds', 'text')
# 256 bytes, four control symbols, and a few characters to write with.
SMALLEST_VOCABULARY = 264


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """Which text is read, and how it is cut into tokens.

  Attributes:
    source: `tfds` for a TensorFlow Datasets translation set, `text` for a pair
      of line-aligned UTF-8 files a split.
    name: the set's TFDS name, such as `wmt14_translate/de-en`; unused for text.
    dir: where the set or the text files lie. Empty means TFDS's own default.
    train: the corpora to train on: TFDS splits, or for text the prefixes of
      `{dir}/{prefix}.{language}`.
    train_weights: how many times an epoch uses each corpus of `train`, one
      number each; 0.5 takes half of the corpus, another half each epoch. Empty
      means once each.
    valid: the split, or prefix, that chooses checkpoints.
    test: the split, or prefix, that `eval.py` scores by default.
    source_language: language code translated from, as the files or TFDS name it.
    target_language: language code translated into.
    vocabulary_size: number of SentencePiece pieces, bytes and control symbols
      included.
    vocabulary_pairs: the most training pairs that the vocabulary is learnt from, all
      of which are held in memory; of more, so many are taken, spread evenly.
    max_length: the most tokens that a sentence may have, end token included,
      and the number of target positions in a row of a batch.
    max_length_ratio: training pairs of which a side has more than this many times the
      tokens of the other, end tokens included, are dropped, and counted; 0 drops none.
    drop_identical: training pairs whose sides are the same are dropped, and counted.
    drop_duplicates: of equal pairs in a training corpus the first is kept; the others
      are dropped, and counted.
    bpe_dropout: probability that a merge of pieces is left out when a training
      sentence is cut, anew every time that it is used (Provilkov et al., 2020,
      "BPE-Dropout", which uses 0.1); 0 always cuts alike.
  """

  source: str = 'tfds'
  name: str = 'phrasebook/en-fr'
  dir: str = ''
  train: tuple[str, ...] = ('train',)
  train_weights: tuple[float, ...] = ()
  valid: str = 'validation'
  test: str = 'test'
  source_language: str = 'en'
  target_language: str = 'fr'
  vocabulary_size: int = 37_000
  vocabulary_pairs: int = 1_000_000
  max_length: int = 256
  max_length_ratio: float = 0.0
  drop_identical: bool = False
  drop_duplicates: bool = False
  bpe_dropout: float = 0.0

  def __post_init__(self):
    if self.source not in SOURCES:
      raise UserError(f'data.source must be one of {", ".join(SOURCES)}; got {self.source!r}')
    if self.source == 'tfds' and not self.name:
      raise UserError('data.name must name a TFDS translation set, such as wmt14_translate/de-en')
    if self.source == 'text' and not self.dir:
      raise UserError('data.dir must name the folder of the text files; set --config.data.dir')
    if not self.source_language or not self.target_language:
      raise UserError('data.source_language and data.target_language must both be set')
    if self.source_language == self.target_language:
      raise UserError(f'data.source_language and data.target_language must differ; '
                      f'both are {self.source_language!r}')
    if not self.train:
      raise UserError('data.train must name at least one corpus; got none')
    if not all((*self.train, self.valid)):
      raise UserError(f'data.train and data.valid must not hold an empty name; '
                      f'got train={self.train}, valid={self.valid!r}')
    if len(set(self.train)) < len(self.train):
      raise UserError(f'data.train must name each corpus once; got {self.train}; '
                      f'data.train_weights says how many times an epoch uses it')
    if self.train_weights and len(self.train_weights) != len(self.train):
      raise UserError(f'data.train_weights must hold one number for each corpus of data.train; '
                      f'got {len(self.train_weights)} for {len(self.train)}')
    if any(not 0 < weight < float('inf') for weight in self.train_weights):
      raise UserError(f'data.train_weights must be positive; got {self.train_weights}')
    if self.vocabulary_size < SMALLEST_VOCABULARY:
      raise UserError(f'data.vocabulary_size must be at least {SMALLEST_VOCABULARY} '
                      f'(256 bytes and the control symbols); got {self.vocabulary_size}')
    if self.vocabulary_pairs < 1:
      raise UserError(f'data.vocabulary_pairs must be at least 1; got {self.vocabulary_pairs}')
    if not 0.0 <= self.bpe_dropout < 1.0:
      raise UserError(f'data.bpe_dropout must be at least 0 and below 1; got {self.bpe_dropout}')
    if self.max_length < 2:
      raise UserError(f'data.max_length must be at least 2, a token and the end token; '
                      f'got {self.max_length}')
    if self.max_length_ratio and not 1 <= self.max_length_ratio < float('inf'):
      raise UserError(f'data.max_length_ratio must be 0, for any, or at least 1 and finite; '
                      f'got {self.max_length_ratio}')
