"""Random models whose translations depend on their sources, and changes of exported folders."""

import json
import shutil

import jax
import numpy as np
import pytest

from transformer.data.batch import EOS_ID, PAD_ID
from transformer.errors import UserError
from transformer.tools.convert.huggingface_reading import read_model
from transformer.tools.convert.huggingface_tensors import WEIGHTS
from transformer.tools.convert.safetensors_format import read_tensors, write_tensors
from transformer.training.step import init_params


def opinionated(model, strength=1.0, norms=1.0):
  """Returns parameters with more variance than trained ones, none of them zero or one.

  Args:
    model: the Transformer.
    strength: a factor of all standard deviations.
    norms: mean of the scales of the norms; those of trained models are often below one.
  """
  rng = np.random.default_rng(7)

  def draw(path, leaf):
    names = [part.key for part in path]
    # Sharp attention makes translations depend on their sources.
    looks = names[-2:-1] in (['query'], ['key'])
    wide = {'bias': 0.2, 'scale': 0.2}.get(names[-1], 1.0 if looks else 0.5)
    return np.asarray(norms * (names[-1] == 'scale') + strength * wide
                      * rng.standard_normal(leaf.shape), np.float32)

  params = jax.tree_util.tree_map_with_path(draw, jax.eval_shape(lambda: init_params(model, 0)))
  output = params['target_embedding']['table'] if model.config.tie_output else params['output']
  output[EOS_ID] *= 2  # Sentences end more often.
  return params


def padded(rows, length):
  """Returns token ids of rows [B, T], their segments and their positions."""
  tokens = np.full((len(rows), length), PAD_ID, np.int32)
  for tokens_T, row in zip(tokens, rows, strict=True):
    tokens_T[:len(row)] = row
  return tokens, (tokens != PAD_ID).astype(np.int32), np.tile(np.arange(length), (len(rows), 1))


def change_tensors(folder, **changes):
  """Changes tensors of a folder, as training in the library does."""
  tensors = read_tensors(folder / WEIGHTS)[1]
  for name, new in changes.items():
    tensors[name] = new(tensors.get(name))
  write_tensors(folder / WEIGHTS, tensors, {'format': 'pt'})


def refuses(folder, copy, changes, fact):
  """Checks that a folder is refused in one line after a change.

  Args:
    folder: a folder that can be read.
    copy: where its copy goes.
    changes: new entries of its config.json, None for one that goes; or the name of a file that
      goes, perhaps with its new content.
    fact: a part of the error.
  """
  shutil.copytree(folder, copy)
  if isinstance(changes, dict):
    about = json.loads((copy / 'config.json').read_text('utf-8')) | changes
    about = {name: value for name, value in about.items() if value is not None}
    (copy / 'config.json').write_text(json.dumps(about), 'utf-8')
  elif isinstance(changes, tuple):
    (copy / changes[0]).write_bytes(changes[1])
  else:
    (copy / changes).unlink()
  with pytest.raises(UserError, match=fact) as caught:
    read_model(copy)
  assert '\n' not in str(caught.value)
