"""Writes a vocabulary as `tokenizer.json`, the format of Hugging Face's `tokenizers`.

It cuts a line into the same pieces as the vocabulary's SentencePiece model does, and gives every
line back as it was. MarianMT's own tokenizer would not: it takes `>>…<<` at the start of a line
for a language code, strips white space, and turns U+2581 into a space.
"""

from pathlib import Path
from typing import Any

from transformer import files
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabulary import BYTE_IDS, ESCAPED, SPACE, Vocabulary
from transformer.tools.convert.vocabulary_pieces import pieces_of


def write(folder: Path, vocabulary: Vocabulary, max_length: int):
  """Writes the files of a vocabulary of merges alone; sources have up to `max_length` tokens."""
  pieces = pieces_of(vocabulary)[0]
  files.write_json(folder / 'tokenizer.json', _tokenizer(pieces))
  files.write_json(
    folder / 'tokenizer_config.json',
    {
      'tokenizer_class': 'PreTrainedTokenizerFast',
      'model_max_length': max_length,
      'model_input_names': ['input_ids', 'attention_mask'],
      'pad_token': pieces[PAD_ID],
      'bos_token': pieces[BOS_ID],
      'eos_token': pieces[EOS_ID],
      'unk_token': pieces[UNK_ID],
      'clean_up_tokenization_spaces': False,
      'split_special_tokens': True,
    },
  )  # A literal `</s>` is four characters.


def _tokenizer(pieces: list[str]) -> dict[str, Any]:
  """Returns the content of tokenizer.json."""
  name = pieces[EOS_ID]
  first, second = ({'Sequence': {'id': side, 'type_id': 0}} for side in 'AB')
  end = {'SpecialToken': {'id': name, 'type_id': 0}}
  return {
    'version': '1.0',
    'truncation': None,
    'padding': None,
    'added_tokens': [
      _special(token, pieces[token]) for token in (PAD_ID, BOS_ID, EOS_ID, UNK_ID)
    ],
    'normalizer': {
      'type': 'Sequence',
      'normalizers': [
        *(_replace(character, escaped) for character, escaped in ESCAPED.items()),
        _replace(' ', SPACE),
        {'type': 'Prepend', 'prepend': SPACE},
      ],
    },
    'pre_tokenizer': None,
    'post_processor': {
      'type': 'TemplateProcessing',
      'single': [first, end],
      'pair': [first, second, end],
      'special_tokens': {name: {'id': name, 'ids': [EOS_ID], 'tokens': [name]}},
    },
    # The escape of the escape character comes last, so that no escape is made of its digit.
    'decoder': {
      'type': 'Sequence',
      'decoders': [
        _replace(SPACE, ' '),
        {'type': 'ByteFallback'},
        {'type': 'Fuse'},
        {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0},
        *(
          _replace(escaped, character)
          for character, escaped in reversed(ESCAPED.items())
        ),
      ],
    },
    'model': {
      'type': 'BPE',
      'dropout': None,
      'unk_token': pieces[UNK_ID],
      'continuing_subword_prefix': None,
      'end_of_word_suffix': None,
      'fuse_unk': False,
      'byte_fallback': True,
      'ignore_merges': False,
      'vocab': {piece: token for token, piece in enumerate(pieces)},
      'merges': _merges(pieces[BYTE_IDS.stop :]),
    },
  }


def _special(token: int, piece: str) -> dict[str, Any]:
  return {
    'id': token,
    'content': piece,
    'single_word': False,
    'lstrip': False,
    'rstrip': False,
    'normalized': False,
    'special': True,
  }


def _merges(pieces: list[str]) -> list[tuple[str, str]]:
  """Returns the pairs that each piece can be merged from; those of the lowest id come first."""
  known = set(pieces)
  merges = []
  for piece in pieces:
    for cut in range(1, len(piece)):
      if piece[:cut] in known and piece[cut:] in known:
        merges.append((piece[:cut], piece[cut:]))
  return merges


def _replace(old: str, new: str) -> dict[str, Any]:
  return {'type': 'Replace', 'pattern': {'String': old}, 'content': new}
