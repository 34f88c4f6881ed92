"""Inspection of a model: layer outputs, their logits, and embeddings replaced by given arrays.

Submodules are found by their Flax names in `Transformer`: `source_embedding` and
`target_embedding`, or only the latter if source and target share it; `encoder_0`, `decoder_0` etc.
"""

import itertools
import re
from collections import OrderedDict
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer.errors import UserError
from transformer.model.building import Model, check_methods

_PART = re.compile(r'(source|target)_embedding|(encoder|decoder)_\d+')


class Embeddings(NamedTuple):
  """The inputs of the first encoder and decoder layers: scaled embeddings plus positions.

  Attributes:
    source: [B, S, D].
    target: [B, T, D], of the decoder inputs, which start with BOS: position t predicts token t.
  """

  source: Any
  target: Any


class HiddenStates(NamedTuple):
  """Encoder or decoder outputs for lines of at most T tokens, EOS included."""

  # float32 [line, T, D], zero at padding; or a dict of such arrays by layer name
  output: Any
  mask: Any  # boolean [line, T], True at tokens


@jax.jit(static_argnums=0, static_argnames='layers')
def layer_outputs(model: Model, params, *inputs, layers: bool) -> Any:
  """Returns the outputs of the encoder, or of the decoder by teacher forcing, [B, T, D].

  Args:
    *inputs: the first three model arguments for the encoder, all six for the decoder.

  Returns:
    The final output; with `layers`, a dict by name: the outputs of `embedding` and of each layer,
    such as `encoder_0`, before the final norm.

  Raises:
    UserError: the model has no method `encode`, or no submodules of these names.
  """
  encoding = len(inputs) == 3
  method = 'encode' if encoding else '__call__'
  check_methods(model, method)
  output, variables = model.apply(
    {'params': params}, *inputs, method=method, capture_intermediates=_is_part
  )
  if not encoding:
    output, _ = output
    if model.config.output_bias:
      output = output[..., : model.config.model_dim]
  if not layers:
    return output
  outputs = OrderedDict()
  for name, calls in variables.get('intermediates', {}).items():
    if encoding or name.startswith(('target', 'decoder')):
      # The last call is by the decoder. A layer may also return its keys and values.
      last, *_ = jax.tree.leaves(calls['__call__'][-1])
      outputs[re.sub('(source|target)_', '', name)] = last
  if 'embedding' not in outputs or len(outputs) == 1:
    raise UserError(
      f'the model {type(model).__name__} has no recognizable embedding or layers; name them as '
      'Transformer does: transformer.model.inspection lists the names'
    )
  return outputs


def hidden_states(model: Model, params, *inputs, layers: bool) -> HiddenStates:
  """Computes `layer_outputs`; returns them on the host, without positions that are only padding."""
  outputs = jax.device_get(layer_outputs(model, params, *inputs, layers=layers))
  mask_BT = np.asarray(inputs[-2]) > 0  # Segments of the source, or of the target.
  used_T = np.any(mask_BT, axis=0)

  def trimmed(x_BTD):
    return np.where(mask_BT[..., None], x_BTD, 0)[:, used_T].astype(np.float32)

  return HiddenStates(jax.tree.map(trimmed, outputs), mask_BT[:, used_T])


@jax.jit(static_argnums=0)
def layer_logits(model: Model, params, x_BTD) -> Any:
  """Maps the output of a layer [..., D] to logits, float32 [..., N], after the final norm.

  Raises `UserError` if the model has no method `layer_logits`, or D is not `model_dim`.
  """
  check_methods(model, 'layer_logits')
  width = model.config.model_dim
  if x_BTD.shape[-1] != width:
    raise UserError(
      f'the outputs of a layer must have shape [..., {width}]; got {x_BTD.shape}'
    )
  return model.apply({'params': params}, x_BTD, method='layer_logits')


@jax.jit(static_argnums=0)
def embeddings(model: Model, params, *batch) -> Embeddings:
  """Returns the float32 embeddings of a batch; `batch` is the six model arguments.

  Raises `UserError` as `layer_outputs` does.
  """
  source = layer_outputs(model, params, *batch[:3], layers=True)['embedding']
  target = layer_outputs(model, params, *batch, layers=True)['embedding']
  return Embeddings(source.astype(jnp.float32), target.astype(jnp.float32))


def override_embeddings(params, replacements: Embeddings, dtype: str) -> Any:
  """Returns a context manager in which `replacements` are a model's token embeddings."""
  calls = {('target_embedding',): itertools.cycle(replacements)}
  if 'source_embedding' in params:
    source, target = map(itertools.repeat, replacements)
    calls = {('source_embedding',): source, ('target_embedding',): target}

  def intercept(call, args, kwargs, context):
    path = context.module.path
    if context.method_name == '__call__' and path in calls:
      return jnp.asarray(next(calls[path]), dtype)
    return call(*args, **kwargs)

  return nn.intercept_methods(intercept)


def _is_part(module: nn.Module, method: str) -> Any:
  """Returns whether a call is of an embedding or of a layer."""
  return method == '__call__' and _PART.fullmatch('/'.join(module.path))
