"""The vocabularies of a MarianMT folder: SentencePiece models, and the row of each piece.

source.spm, target.spm    SentencePiece models that segment text; they may be the same file
vocab.json                the row of each piece in the tables, for both languages
target_vocab.json         the rows of target pieces, if the languages have separate tables
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer import files
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.config import (
  SEPARATE_VOCABULARIES,
  SHARED_VOCABULARY,
  DataConfig,
)
from transformer.data.vocabulary import vocabularies
from transformer.data.vocabulary.vocabularies import (
  RunVocabulary,
  SeparateVocabularies,
  is_shared,
)
from transformer.data.vocabulary.vocabulary import SPACE, Vocabulary
from transformer.errors import UserError
from transformer.tools.convert.sentencepiece_import import import_sentencepiece
from transformer.tools.convert.vocabulary_pieces import extend, pieces_of

_MODELS = ('source.spm', 'target.spm')
_VOCABULARIES = ('vocab.json', 'target_vocab.json')
# In the order of this project's ids.
_SPECIAL_PIECES = ('<pad>', '<s>', '</s>', '<unk>')
_CODE = re.compile('>>[^<>]+<<')


class JsonFile(dict):
  """The object in a JSON file; a missing key raises `UserError` with the name of the file."""

  def __init__(self, path: Path):
    self._path = path
    try:
      super().__init__(json.loads(path.read_text('utf-8')))
    except (OSError, TypeError, ValueError) as error:
      raise UserError(
        f'{path} should hold a JSON object; it does not ({error}); save model and '
        f'tokenizer with save_pretrained'
      ) from error

  def __missing__(self, key: str):
    raise UserError(f'{self._path} should have an entry {key!r}; it has none')


class Vocabularies(NamedTuple):
  """The vocabularies of a folder, and the rows of its embedding tables.

  Attributes:
    vocabulary: the run's vocabulary or vocabularies.
    source_N: for each source token, its row in the folder's table; `<unk>`'s for other pieces.
    target_N: for each target token, its row.
  """

  vocabulary: RunVocabulary
  source_N: np.ndarray
  target_N: np.ndarray


def is_native(folder: Path) -> bool:
  """Returns whether a folder has the vocabulary and the ids of this project."""
  names = (*SHARED_VOCABULARY, *SEPARATE_VOCABULARIES)
  return any((folder / name).exists() for name in names)


def read(folder: Path, hf_config: Mapping[str, Any], separate: bool) -> Vocabularies:
  """Reads the vocabularies of a folder, written by this project or for any MarianMT.

  The target vocabulary contains all pieces of the target table, since a translation may have them.
  Language codes such as `>>fra<<` are single pieces. `hf_config` is config.json; `separate` means
  separate tables.
  """
  if is_native(folder):
    vocabulary = vocabularies.load(folder)
    source_N = np.arange(vocabulary.source.size)
    target_N = np.arange(vocabulary.target.size)
    return Vocabularies(vocabulary, source_N, target_N)
  for name in (*_MODELS, _VOCABULARIES[0]):
    if not (folder / name).exists():
      raise UserError(f'{folder} should hold {name}; restore it from a copy')
  ids = [JsonFile(folder / name) for name in _VOCABULARIES[: 1 + separate]]
  if ids[-1]['</s>'] != hf_config['eos_token_id']:
    raise UserError(
      f'{folder}/config.json should have the id of </s> as eos_token_id, '
      f'{ids[-1]["</s>"]}; it has {hf_config["eos_token_id"]}'
    )
  source_path, target_path = [folder / name for name in _MODELS]
  source_ids = ids[0]
  target_ids = ids[-1]
  codes = [SPACE + piece for piece in source_ids if _CODE.fullmatch(piece)]
  # Pieces that do not result from segmentation, without control symbols.
  others = [
    piece
    for piece in sorted(target_ids, key=target_ids.get)
    if piece not in _SPECIAL_PIECES
  ]
  if source_path.read_bytes() == target_path.read_bytes():
    others = [piece for piece in others if SPACE + piece not in codes]
    source = target = vocabulary = extend(
      import_sentencepiece(source_path), codes, others
    )
  else:
    characters = [piece for piece in source_ids if len(piece) == 1]
    source = extend(import_sentencepiece(source_path), codes, characters)
    target = extend(import_sentencepiece(target_path), (), others)
    vocabulary = SeparateVocabularies(source, target)
  source_N = _rows(source, source_ids, hf_config)
  return Vocabularies(vocabulary, source_N, _rows(target, target_ids, hf_config))


def _rows(
  vocabulary: Vocabulary, ids: Mapping[str, int], hf_config: Mapping[str, Any]
) -> np.ndarray:
  """Returns the row of each piece of a vocabulary."""
  row_N = np.array(
    [ids.get(piece, ids['<unk>']) for piece in _marian_names(vocabulary)]
  )
  row_N[PAD_ID] = hf_config['pad_token_id']
  row_N[BOS_ID] = hf_config['decoder_start_token_id']
  row_N[EOS_ID] = ids['</s>']
  row_N[UNK_ID] = ids['<unk>']
  return row_N


def _marian_names(vocabulary: Vocabulary) -> list[str]:
  """Returns the library's names of the pieces: language codes have no leading space."""
  names = []
  for piece in pieces_of(vocabulary)[0]:
    bare = piece.removeprefix(SPACE)
    names.append(bare if _CODE.fullmatch(bare) else piece)
  return names


def write(folder: Path, vocabulary: RunVocabulary, data: DataConfig):
  """Writes the vocabulary files of a folder, for the library's MarianTokenizer."""
  separate = not is_shared(vocabulary)
  sides = [vocabulary.source, vocabulary.target]
  for name, side in zip(_MODELS, sides, strict=True):
    files.write(folder / name, side.model_bytes)
  for name, side in zip(_VOCABULARIES[: 1 + separate], sides, strict=False):
    names = _marian_names(side)
    names[: len(_SPECIAL_PIECES)] = _SPECIAL_PIECES
    files.write_json(folder / name, {piece: token for token, piece in enumerate(names)})
  pad, _, end, unknown = _SPECIAL_PIECES
  files.write_json(
    folder / 'tokenizer_config.json',
    {
      'tokenizer_class': 'MarianTokenizer',
      'separate_vocabs': separate,
      'source_lang': data.source_language,
      'target_lang': data.target_language,
      'model_max_length': data.max_length,
      'clean_up_tokenization_spaces': False,
      'split_special_tokens': True,  # A literal </s> is four characters.
      'pad_token': pad,
      'eos_token': end,
      'unk_token': unknown,
    },
  )
