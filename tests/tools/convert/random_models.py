"""Random models whose translations depend on their sources, and exported folders that change."""

import json
import shutil

import jax
import numpy as np
import pytest

from transformer.data.batch import EOS_ID, PAD_ID
from transformer.errors import UserError
from transformer.model.transformer import init_params
from transformer.tools.convert.huggingface_import import read_model
from transformer.tools.convert.huggingface_tensors import WEIGHTS
from transformer.tools.convert.safetensors_format import read_tensors, write_tensors

# With biases, random models give more different translations.
SHAPE = {
  'num_layers': 2,
  'model_dim': 14,
  'ff_dim': 22,
  'num_heads': 2,
  'attention_bias': 'all',
}
# What MarianMT can represent, and CTranslate2 too.
KINDS = {
  'published': {'attention_bias': 'none'},
  'biases of outputs': {'attention_bias': 'output'},
  'all biases': {},
  'deep encoder': {'num_layers': 3, 'decoder_layers': 1},
  'separate tables': {'share_embeddings': False, 'tie_output': False},
  'separate sources': {'share_embeddings': False},
  'separate output': {'tie_output': False},
  'gelu': {'activation': 'gelu'},
  'silu': {'activation': 'silu'},
  'bias of the logits': {'output_bias': True},
  'norms before': {'norm_position': 'pre'},
}


def opinionated(model, strength=1.0, norms=1.0):
  """Returns parameters with more variance than trained ones, none of them zero or one.

  Standard deviations have the factor `strength`. The norms' scales have the mean `norms`; in
  trained models they are often below one.
  """
  rng = np.random.default_rng(7)

  def draw(path, leaf):
    names = [part.key for part in path]
    # Sharp attention makes translations depend on their sources.
    looks = names[-2:-1] in (['query'], ['key'])
    wide = {'bias': 0.2, 'scale': 0.2}.get(names[-1], 1.0 if looks else 0.5)
    return np.asarray(
      norms * (names[-1] == 'scale')
      + strength * wide * rng.standard_normal(leaf.shape),
      np.float32,
    )

  params = jax.tree_util.tree_map_with_path(
    draw, jax.eval_shape(lambda: init_params(model, 0))
  )
  output = (
    params['target_embedding']['table'] if model.config.tie_output else params['output']
  )
  output[EOS_ID] *= 2  # Sentences end more often.
  return params


def padded(rows, length):
  """Returns token ids of rows [B, T], their segments and their positions."""
  tokens = np.full((len(rows), length), PAD_ID, np.int32)
  for tokens_T, row in zip(tokens, rows, strict=True):
    tokens_T[: len(row)] = row
  return (
    tokens,
    (tokens != PAD_ID).astype(np.int32),
    np.tile(np.arange(length), (len(rows), 1)),
  )


def logits_of(hf_model, sources, targets):
  """Returns the logits of a model of Hugging Face's library for batches of `padded`."""
  import torch  # Few machines have it.

  with torch.no_grad():
    return hf_model(
      input_ids=torch.tensor(sources[0]),
      attention_mask=torch.tensor(sources[1]),
      decoder_input_ids=torch.tensor(targets[0]),
    ).logits.numpy()


def change_tensors(folder, **changes):
  """Changes tensors of a folder, as training in the library does."""
  tensors = read_tensors(folder / WEIGHTS)[1]
  for name, new in changes.items():
    tensors[name] = new(tensors.get(name))
  write_tensors(folder / WEIGHTS, tensors, {'format': 'pt'})


def change_json(path, **changes):
  """Changes entries of a JSON file; None removes one."""
  entries = json.loads(path.read_text('utf-8')) | changes
  path.write_text(
    json.dumps({name: value for name, value in entries.items() if value is not None}),
    'utf-8',
  )


def rejects(folder, copy, changes, fact):
  """Checks that a changed copy of a folder raises a one-line error with `fact`.

  The change is of entries of config.json, or a pair of a file and its content, None if it goes.
  """
  shutil.copytree(folder, copy)
  if isinstance(changes, dict):
    change_json(copy / 'config.json', **changes)
  elif changes[1] is None:
    (copy / changes[0]).unlink()
  else:
    (copy / changes[0]).write_bytes(changes[1])
  with pytest.raises(UserError, match=fact) as caught:
    read_model(copy)
  assert '\n' not in str(caught.value)
