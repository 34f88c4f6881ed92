"""MarianMT folders shaped like the published models, made by hand from random weights."""

import functools
import io
import json
import random
from pathlib import Path

import numpy as np
import sentencepiece

from tests.sentences import english_and_french
from transformer.tools.convert.safetensors_format import write_tensors

DIM, INNER, HEADS, LAYERS = 14, 22, 2, 2
CODES = ('>>fra<<', '>>deu<<')
# The files of vocabularies that published models come with.
KINDS = {
  'two models': {},
  'equal models': {'equal': True},
  'a table each': {'separate_tables': True},
  'a vocabulary each': {'separate_tables': True, 'separate_vocabs': True},
  'codes of languages': {'codes': CODES},
  'equal models with codes': {'equal': True, 'codes': CODES},
}


@functools.cache
def known_text(folder: Path) -> tuple[list[str], list[str]]:
  """Returns the pairs without characters that the models of a folder do not know."""
  models = [
    sentencepiece.SentencePieceProcessor(model_file=str(folder / name))
    for name in ('source.spm', 'target.spm')
  ]
  pairs = [
    pair
    for pair in zip(*english_and_french(300, 3), strict=True)
    if not any(
      model.unk_id() in model.encode(line)
      for model, line in zip(models, pair, strict=True)
    )
  ]
  return [source for source, _ in pairs], [target for _, target in pairs]


@functools.cache
def model_bytes(side: int, kind: str = 'unigram') -> bytes:
  """Returns a SentencePiece model with the defaults of spm_train, of a side or of both (2)."""
  model = io.BytesIO()
  sources, targets = english_and_french(300, 3)
  lines = (sources, targets, [*sources, *targets])[side]
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines),
    model_writer=model,
    vocab_size=190,
    model_type=kind,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
  processor = sentencepiece.SentencePieceProcessor(model_proto=model)
  return [
    processor.id_to_piece(token)
    for token in range(processor.get_piece_size())
    if not processor.is_control(token) and not processor.is_unknown(token)
  ]


def write_vocabularies(
  folder: Path,
  equal=False,
  separate_tables=False,
  separate_vocabs=False,
  codes=(),
  kind='unigram',
) -> int:
  """Writes the vocabularies and what describes them, and returns the number of rows of a table.

  The last pieces that only one of the models has get no row. The rows have another order than
  the pieces.
  """
  models = (
    [model_bytes(2, kind)] * 2
    if equal
    else [model_bytes(0, kind), model_bytes(1, kind)]
  )
  for name, model in zip(('source.spm', 'target.spm'), models, strict=True):
    (folder / name).write_bytes(model)
  of_model = [pieces_of(model) for model in models]
  common = set(of_model[0]) & set(of_model[1])
  own = [
    [piece for piece in pieces if equal or piece not in common][-3:]
    for pieces in of_model
  ]
  sides = [
    [piece for piece in pieces if piece not in lost]
    for pieces, lost in zip(of_model, own, strict=True)
  ]
  ids = []
  for space in sides if separate_vocabs else [dict.fromkeys(sides[0] + sides[1])]:
    pieces = [*codes, *space]
    random.Random(1).shuffle(pieces)
    ids.append({piece: row for row, piece in enumerate(['</s>', '<unk>', *pieces])})
  padding = max(map(len, ids))  # One token, in a row of both tables.
  for name, row_of in zip(('vocab.json', 'target_vocab.json'), ids, strict=False):
    row_of['<pad>'] = padding
    (folder / name).write_text(json.dumps(row_of), 'utf-8')
  (folder / 'tokenizer_config.json').write_text(
    json.dumps(
      {
        'tokenizer_class': 'MarianTokenizer',
        'source_lang': 'en',
        'target_lang': 'fr',
        'model_max_length': 64,
        'separate_vocabs': separate_vocabs,
      }
    ),
    'utf-8',
  )
  return padding + 1


def description(rows: int, separate_tables=False) -> dict:
  """Returns a config.json as published models have it; newer ones have fewer entries."""
  pad = rows - 1
  sides = {
    f'{side}_{name}': value
    for side in ('encoder', 'decoder')
    for name, value in (
      ('layers', LAYERS),
      ('ffn_dim', INNER),
      ('attention_heads', HEADS),
      ('layerdrop', 0.0),
    )
  }
  about = {
    'model_type': 'marian',
    'architectures': ['MarianMTModel'],
    'activation_function': 'swish',
    'd_model': DIM,
    'dropout': 0.1,
    'attention_dropout': 0.0,
    'activation_dropout': 0.0,
    **sides,
    'vocab_size': rows,
    'scale_embedding': True,
    'normalize_embedding': False,
    'normalize_before': False,
    'add_final_layer_norm': False,
    'add_bias_logits': False,
    'static_position_embeddings': True,
    'max_position_embeddings': 512,
    'bos_token_id': 0,
    'eos_token_id': 0,
    'forced_eos_token_id': 0,
    'pad_token_id': pad,
    'decoder_start_token_id': pad,
    'bad_words_ids': [[pad]],
    'num_beams': 6,
    'max_length': 512,
  }
  if separate_tables:
    about |= {
      'share_encoder_decoder_embeddings': False,
      'decoder_vocab_size': rows,
      'tie_word_embeddings': True,
    }
  return about


def weights(rows: int, separate_tables=False) -> dict[str, np.ndarray]:
  """Returns random tensors by the library's names; the row of padding is zero, as published."""
  rng = np.random.default_rng(5)
  tables = (
    ('encoder.embed_tokens', 'decoder.embed_tokens') if separate_tables else ('shared',)
  )
  shapes = {f'model.{name}.weight': (rows, DIM) for name in tables}
  for side, attentions in (
    ('encoder', ['self_attn']),
    ('decoder', ['self_attn', 'encoder_attn']),
  ):
    for layer in range(LAYERS):
      place = f'model.{side}.layers.{layer}'
      linear = {
        f'{name}.{part}_proj': (DIM, DIM)
        for name in attentions
        for part in ('q', 'k', 'v', 'out')
      } | {'fc1': (INNER, DIM), 'fc2': (DIM, INNER)}
      norms = {f'{name}_layer_norm': (DIM,) for name in (*attentions, 'final')}
      for name, shape in (linear | norms).items():
        shapes |= {f'{place}.{name}.weight': shape, f'{place}.{name}.bias': shape[:1]}
  tensors = {}
  for name, shape in shapes.items():
    around = 1.0 if 'norm.weight' in name else 0.0
    # Rounding errors grow with it.
    wide = 0.6 if 'embed' in name or 'shared' in name else 0.15
    tensors[name] = np.float32(around + wide * rng.standard_normal(shape))
  for name in tensors:
    if 'embed' in name or 'shared' in name:
      tensors[name][-1] = 0
      tensors[name][0] *= 2  # Sentences end more often.
  return tensors | {
    'final_logits_bias': np.float32(0.3 * rng.standard_normal((1, rows)))
  }


def write_folder(folder: Path, **kind) -> Path:
  """Writes a folder of a kind of `KINDS`, as a published one."""
  rows, separate = (
    write_vocabularies(folder, **kind),
    kind.get('separate_tables', False),
  )
  (folder / 'config.json').write_text(json.dumps(description(rows, separate)), 'utf-8')
  write_tensors(folder / 'model.safetensors', weights(rows, separate), {'format': 'pt'})
  return folder
