"""Parameters of the tensors in a folder of Hugging Face's `transformers`.

Tables are put in the order of this project's ids:

  piece                       its row of the tables  its bias of the logits
  padding, begin              that of the folder     −1000 if it may not be generated there
  a piece of vocab.json       its own                its own
  a byte or piece without row that of `<unk>`        that of `<unk>` − 40

So real pieces have the probabilities that they have in the library, but for e⁻⁴⁰ of that of
`<unk>`, and training can still raise those of bytes.
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

# A table that several parts share may be saved under the name of any of them.
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
_NEVER = -1000.0  # Exact in bfloat16. No logit makes up for it.
_RARER = 40.0


def read_params(
  folder: Path,
  about: Mapping[str, Any],
  model: ModelConfig,
  tensors: Mapping[str, np.ndarray],
) -> dict[str, Any]:
  """Returns the parameters in the folder's order of rows.

  Args:
    folder: the folder, for messages.
    about: the content of config.json.
    model: the settings of the model.
    tensors: the library's tensors by name.

  Raises:
    UserError: a tensor is missing, has another size, or has no place in the model.
  """
  size = about['vocab_size']
  target_size = size
  if not about['share_encoder_decoder_embeddings']:
    target_size = about.get('decoder_vocab_size') or size
  places = list(huggingface_tensors.layout(model, size, target_size))
  known = {place.name for place in places}
  known.update(POSITIONS, _ALIASES)
  known.update(['final_logits_bias', _SHARED_TABLE])
  unknown = sorted(tensors.keys() - known)
  if unknown:
    raise UserError(
      f'{folder} holds {", ".join(unknown)}, for which this project has no '
      f'place in such a model; save the model without them'
    )
  arrays = {}
  for place in places:
    projection = re.search(r'attention\.(\w+)\.bias$', place.path)
    if projection and projection[1] not in _ATTENTION_BIASES[model.attention_bias]:
      continue
    arrays[place.path] = place.ours(_tensor_of(folder, place, tensors))
  return traverse_util.unflatten_dict(arrays, sep='.')


def _tensor_of(folder: Path, place, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
  """Returns the tensor of a parameter; raises `UserError` if it is missing or of another size."""
  names = [place.name]
  if place.name == _SHARED_TABLE:
    names += _ALIASES
  given = [tensors[name] for name in names if name in tensors]
  size = int(np.prod(place.shape))
  if not given or given[0].size != size:
    raise UserError(
      f'{folder} should hold {place.name} with {size} numbers, as config.json says; it holds '
      f'{given[0].size if given else "none"}'
    )
  return given[0]


def check_positions(folder: Path, dim: int, stored: Mapping[str, np.ndarray]):
  """Raises `UserError` if a folder holds positions other than sinusoids.

  Most folders hold none. An exported Pegasus has sinusoids, which the library may train.
  """
  for name in POSITIONS:
    table_TD = stored.get(name)
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
  """Returns the bias of each target piece's logit as a parameter, if one of them is not zero.

  Args:
    folder: the folder, for messages.
    generation: the content of generation_config.json.
    row_N: the row of each target piece in the folder's tables.
    tensors: the library's tensors by name.
  """
  banned = generation.get('bad_words_ids') or []
  if any(len(tokens) != 1 for tokens in banned):
    raise UserError(
      f'{folder} has bad_words_ids={banned}; this project can hold single tokens alone'
    )
  lacks_N = row_N == row_N[UNK_ID]
  lacks_N[UNK_ID] = False
  none = np.zeros(row_N.max() + 1, np.float32)
  given = tensors.get('final_logits_bias', none).reshape(-1)
  if not (lacks_N.any() or banned or given.any()):
    return {}
  never_N = np.isin(row_N, np.ravel(banned)) & ~lacks_N
  if row_N[PAD_ID] == row_N[BOS_ID]:
    never_N[[PAD_ID, BOS_ID]] = True
  bias_N = np.where(never_N, _NEVER, given[row_N] - _RARER * lacks_N)
  return {'output_bias': bias_N.astype(np.float32)}


def put_in_order(params: dict[str, Any], vocabularies: Vocabularies) -> bool:
  """Puts the rows of tables in the order of this project's ids; returns whether one is shared.

  Languages that share a table in the folder get one each if their pieces have other rows.
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
