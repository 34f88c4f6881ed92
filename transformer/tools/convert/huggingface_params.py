"""Converts tensors in a folder of Hugging Face's `transformers` to parameters.

Rows of tables are put in the order of this project's ids:

  piece                         row in the tables     bias of the logit
  padding, BOS                  the folder's row      −1000 if it must not be generated there
  a piece of vocab.json         its row               its bias
  a byte or piece without row   the row of `<unk>`    the bias of `<unk>` − 40

So real pieces keep their probabilities in the library, up to e⁻⁴⁰ times the probability of `<unk>`,
and training can still raise the probabilities of bytes.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from transformer.data.batch import BOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabularies import is_shared
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.tools.convert import huggingface_tensors
from transformer.tools.convert.huggingface_tensors import POSITIONS
from transformer.tools.convert.marian_vocabulary import Vocabularies

# A shared table may be saved under the name of any part that uses it.
_SHARED_TABLE = 'model.shared.weight'
_ALIASES = (
  'model.decoder.embed_tokens.weight',
  'lm_head.weight',
  'model.encoder.embed_tokens.weight',
)
_ATTENTION_BIASES = {
  'none': (),
  'output': ('output',),
  'all': ('query', 'key', 'value', 'output'),
}
_NEVER = -1000.0  # Exact in bfloat16. No logit outweighs it.
_RARER = 40.0


def read_params(
  folder: Path,
  hf_config: Mapping[str, Any],
  model: ModelConfig,
  tensors: Mapping[str, np.ndarray],
) -> dict[str, Any]:
  """Returns the parameters, with rows in the folder's order.

  Args:
    folder: the folder, for error messages.
    hf_config: the content of config.json.
    model: the settings of the model.
    tensors: the library's tensors by name.

  Raises:
    UserError: a tensor is missing, has the wrong size, or has no equivalent in the model.
  """
  size = hf_config['vocab_size']
  target_size = size
  if not hf_config['share_encoder_decoder_embeddings']:
    target_size = hf_config.get('decoder_vocab_size') or size
  places = list(huggingface_tensors.layout(model, size, target_size))
  names = {place.name for place in places}
  names.update(POSITIONS, _ALIASES)
  names.update(['final_logits_bias', _SHARED_TABLE])
  unknown = sorted(tensors.keys() - names)
  if unknown:
    raise UserError(
      f'{folder} holds {", ".join(unknown)}, which a model of this project lacks; save the '
      'model without them'
    )
  arrays = {}
  for place in places:
    projection = re.search(r'attention\.(\w+)\.bias$', place.path)
    if projection and projection[1] not in _ATTENTION_BIASES[model.attention_bias]:
      continue
    arrays[place.path] = place.from_huggingface(_tensor_of(folder, place, tensors))
  return traverse_util.unflatten_dict(arrays, sep='.')


def _tensor_of(folder: Path, place, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
  """Returns the tensor of a parameter; raises `UserError` if it is missing or of the wrong size."""
  names = [place.name]
  if place.name == _SHARED_TABLE:
    names += _ALIASES
  matches = [tensors[name] for name in names if name in tensors]
  size = int(np.prod(place.shape))
  if not matches or matches[0].size != size:
    raise UserError(
      f'{folder} should hold {place.name} with {size} numbers, as config.json says; it holds '
      f'{matches[0].size if matches else "none"}'
    )
  return matches[0]


def check_positions(folder: Path, dim: int, weights: Mapping[str, np.ndarray]):
  """Raises `UserError` if the stored positions are not sinusoidal.

  Most folders have no positions. An exported Pegasus has sinusoidal ones, which the library may
  train.
  """
  for name in POSITIONS:
    table_TD = weights.get(name)
    if table_TD is None:
      continue
    sinusoids_TD = huggingface_tensors.sinusoids(len(table_TD), dim)
    smallest = jnp.finfo(table_TD.dtype).eps
    if not np.allclose(
      np.asarray(table_TD, np.float32), sinusoids_TD, rtol=0, atol=smallest
    ):
      raise UserError(
        f'{folder} should hold sinusoids as {name}; they were trained; train again with these '
        f'positions frozen'
      )


def logits_bias(
  folder: Path,
  generation: Mapping[str, Any],
  row_N: np.ndarray,
  tensors: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
  """Returns the bias of the target logits as a parameter; {} if all are zero.

  Args:
    folder: the folder, for error messages.
    generation: the content of generation_config.json.
    row_N: the row of each target piece in the folder's tables.
    tensors: the library's tensors by name.
  """
  banned = generation.get('bad_words_ids') or []
  if any(len(tokens) != 1 for tokens in banned):
    raise UserError(
      f'{folder} has bad_words_ids={banned}; this project supports only single tokens'
    )
  lacks_N = row_N == row_N[UNK_ID]
  lacks_N[UNK_ID] = False
  zeros = np.zeros(row_N.max() + 1, np.float32)
  row_bias = tensors.get('final_logits_bias', zeros).reshape(-1)
  if not (lacks_N.any() or banned or row_bias.any()):
    return {}
  never_N = np.isin(row_N, np.ravel(banned)) & ~lacks_N
  if row_N[PAD_ID] == row_N[BOS_ID]:
    never_N[[PAD_ID, BOS_ID]] = True
  bias_N = np.where(never_N, _NEVER, row_bias[row_N] - _RARER * lacks_N)
  return {'output_bias': bias_N.astype(np.float32)}


def reorder_rows(params: dict[str, Any], vocabularies: Vocabularies) -> bool:
  """Reorders the rows of tables by this project's ids; returns whether the embeddings are shared.

  If languages share a table in the folder, but their pieces have different rows, each gets its own
  table.
  """
  vocabulary, source_N, target_N = vocabularies
  target = params['target_embedding']['table']
  source = params.pop('source_embedding', None)
  same_rows = is_shared(vocabulary) and np.array_equal(source_N, target_N)
  shared = source is None and same_rows
  params['target_embedding'] = {'table': target[target_N]}
  if not shared:
    table = source['table'] if source else target
    params['source_embedding'] = {'table': table[source_N]}
  if 'output' in params:
    params['output'] = params['output'][target_N]
  return shared
