"""The vocabularies of a MarianMT folder: SentencePiece models, and the row of each piece.

  source.spm, target.spm    cut text into pieces; they may be the same file
  vocab.json                the row of each piece in the tables, of both languages
  target_vocab.json         the rows of the target's pieces, if the languages have a table each
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer import files
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.config import SHARED_VOCABULARY, DataConfig
from transformer.data.vocabulary.adoption import adopt
from transformer.data.vocabulary.vocabularies import RunVocabulary, SeparateVocabularies, is_shared
from transformer.data.vocabulary.vocabulary import SPACE, Vocabulary
from transformer.errors import UserError
from transformer.tools.convert.vocabulary_pieces import extend

MODELS = ('source.spm', 'target.spm')
VOCABULARIES = ('vocab.json', 'target_vocab.json')
# In the order of this project's ids.
SPECIAL_PIECES = ('<pad>', '<s>', '</s>', '<unk>')
_CODE = re.compile('>>[^<>]+<<')


class Rows(NamedTuple):
  """Where a vocabulary's pieces are in a folder's tables.

  Attributes:
    row_N: the row of each piece; a piece that the folder lacks has that of `<unk>`.
    lacks_N: whether the folder lacks the piece.
  """

  row_N: np.ndarray
  lacks_N: np.ndarray


class Vocabularies(NamedTuple):
  """The vocabularies of a folder, as this project holds them.

  Attributes:
    vocabulary: one that both languages share if `source.spm` is `target.spm`, else two.
    source: the rows of the source's pieces.
    target: the rows of the target's pieces.
  """

  vocabulary: RunVocabulary
  source: Rows
  target: Rows


def is_own(folder: Path) -> bool:
  """Returns whether a folder has the vocabulary and the ids of this project."""
  return not (folder / VOCABULARIES[0]).exists() and (folder / SHARED_VOCABULARY[0]).exists()


def read_own(folder: Path) -> Vocabularies:
  """Reads the vocabulary of a folder that this project has written."""
  vocabulary = Vocabulary.load(folder / SHARED_VOCABULARY[0])
  rows = Rows(np.arange(vocabulary.size), np.zeros(vocabulary.size, bool))
  return Vocabularies(vocabulary, rows, rows)


def read(folder: Path, about: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> Vocabularies:
  """Reads the vocabularies of any MarianMT folder.

  The target's vocabulary gets all pieces of the target's table, since a translation may have
  them, as in the library. A character that only the table has is a piece too. Codes of languages
  such as `>>fra<<` are single pieces.

  Args:
    folder: the folder.
    about: its config.json.
    tokenizer: its tokenizer_config.json.

  Raises:
    UserError: a file is missing or cannot be used; the message names it.
  """
  separate = bool(tokenizer.get('separate_vocabs'))
  for name in (*MODELS, *VOCABULARIES[:1 + separate]):
    if not (folder / name).exists():
      raise UserError(f'{folder} should hold {name}; it holds '
                      f'{", ".join(sorted(path.name for path in folder.iterdir()))}; restore it '
                      f'from a copy. If it is an export of this project, it needs '
                      f'{SHARED_VOCABULARY[0]} instead; copy it from there')
  ids = [_read_ids(folder / name) for name in VOCABULARIES[:1 + separate]]
  end = ids[-1].get('</s>')
  if end is None or end != about.get('eos_token_id'):
    raise UserError(f'{folder}/config.json should have the id of </s> as eos_token_id, {end}; it '
                    f'has {about.get("eos_token_id")}')
  models = [(folder / name).read_bytes() for name in MODELS]
  codes = [SPACE + piece for piece in ids[0] if _CODE.fullmatch(piece)]
  if models[0] == models[1]:
    source = target = extend(adopt(folder / MODELS[0]).vocabulary, codes, _others(ids[-1], codes))
    vocabulary = source
  else:
    source, target = (adopt(folder / name).vocabulary for name in MODELS)
    source = extend(source, codes, [piece for piece in ids[0] if len(piece) == 1])
    target = extend(target, (), _others(ids[-1], ()))
    vocabulary = SeparateVocabularies(source, target)
  return Vocabularies(vocabulary, _rows(source, ids[0], about), _rows(target, ids[-1], about))


def write(folder: Path, vocabulary: RunVocabulary, data: DataConfig):
  """Writes the files of a folder and the `tokenizer_config.json` of the library's MarianTokenizer.

  Args:
    folder: an existing folder.
    vocabulary: any vocabulary of this project, or one for each language.
    data: the settings of the text.
  """
  separate = not is_shared(vocabulary)
  sides = vocabulary.source, vocabulary.target
  for name, each in zip(MODELS, sides, strict=True):
    files.write(folder / name, each.model_bytes)
  for name, each in zip(VOCABULARIES[:1 + separate], sides, strict=False):
    files.write_json(folder / name, _their_ids(each))
  pad, _, end, unknown = SPECIAL_PIECES
  files.write_json(folder / 'tokenizer_config.json', {
      'tokenizer_class': 'MarianTokenizer', 'separate_vocabs': separate,
      'source_lang': data.source_language, 'target_lang': data.target_language,
      'model_max_length': data.max_length, 'clean_up_tokenization_spaces': False,
      'pad_token': pad, 'eos_token': end, 'unk_token': unknown})


def _others(ids: Mapping[str, int], codes) -> list[str]:
  """Returns the pieces of a table that text is not cut into, without control symbols."""
  return [piece for piece in sorted(ids, key=ids.get)
          if piece not in SPECIAL_PIECES and SPACE + piece not in codes]


def _rows(vocabulary: Vocabulary, ids: Mapping[str, int], about: Mapping[str, Any]) -> Rows:
  """Returns the rows of a vocabulary's pieces."""
  special = {PAD_ID: about['pad_token_id'], BOS_ID: about['decoder_start_token_id'],
             EOS_ID: ids['</s>'], UNK_ID: ids['<unk>']}
  rows = [special.get(token, _row(vocabulary.piece(token), ids))
          for token in range(vocabulary.size)]
  lacks = np.array([row is None for row in rows])
  return Rows(np.array([ids['<unk>'] if row is None else row for row in rows]), lacks)


def _row(piece: str, ids: Mapping[str, int]) -> int | None:
  return ids.get(_their_name(piece))


def _their_name(piece: str) -> str:
  """Returns a piece as the library names it: without a space before the code of a language."""
  bare = piece.removeprefix(SPACE)
  return bare if _CODE.fullmatch(bare) else piece


def _their_ids(vocabulary: Vocabulary) -> dict[str, int]:
  """Returns the content of `vocab.json`, or of `target_vocab.json`, for a vocabulary's own ids."""
  pieces = [_their_name(vocabulary.piece(token)) for token in range(vocabulary.size)]
  pieces[:len(SPECIAL_PIECES)] = SPECIAL_PIECES
  return {piece: token for token, piece in enumerate(pieces)}


def _read_ids(path: Path) -> dict[str, int]:
  """Returns the row of each piece by a JSON file."""
  try:
    ids = json.loads(path.read_text('utf-8'))
  except (OSError, ValueError) as error:
    raise UserError(f'{path} should hold JSON; it cannot be read ({error}); restore it from a '
                    f'copy') from error
  if not isinstance(ids, dict) or not all(type(each) is int and each >= 0 for each in ids.values()):
    raise UserError(f'{path} should hold a JSON object with the row of each piece; it does not; '
                    f'restore it from a copy')
  missing = [piece for piece in ('</s>', '<unk>') if piece not in ids]
  if missing:
    raise UserError(f'{path} should have a row for {" and ".join(missing)}; it has none; restore '
                    f'it from a copy')
  return ids
