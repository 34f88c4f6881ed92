"""Flax's `examples/wmt`, imported from a checkout of google/flax."""

import functools
import importlib
import importlib.machinery
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import jax_utils
from workload import Workload

from transformer.data.batch import EOS_ID

# Modules that its train.py imports for data, metrics and scores; a training step uses none.
_UNUSED = (
  'tensorflow',
  'clu',
  'clu.metric_writers',
  'clu.periodic_actions',
  'bleu',
  'input_pipeline',
)


def load_example(checkout: str):
  """Imports `train` and `models` of the example.

  Args:
    checkout: folder of a clone of https://github.com/google/flax.

  Returns:
    The two modules.
  """
  folder = Path(checkout).expanduser() / 'examples' / 'wmt'
  if not (folder / 'train.py').exists():
    raise FileNotFoundError(
      f'--flax must be a clone of google/flax; {folder}/train.py is missing'
    )
  # Otherwise Flax would mistake the empty `tensorflow` below for the real one.
  importlib.import_module('flax.training.checkpoints')
  for name in _UNUSED:
    if name not in sys.modules:
      sys.modules[name] = types.ModuleType(name)
      sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
  # Used in annotations that are evaluated when the module is loaded.
  sys.modules['tensorflow'].data = types.SimpleNamespace(Dataset=None)
  for name in ('metric_writers', 'periodic_actions'):
    setattr(sys.modules['clu'], name, sys.modules[f'clu.{name}'])
  sys.path.insert(0, str(folder))
  return importlib.import_module('train'), importlib.import_module('models')


def make_training_step_benchmark(work: Workload, checkout: str):
  """Builds a training step as in its `train_and_evaluate`, on one device.

  Args:
    work: the model and the batch.
    checkout: see `load_example`.

  Returns:
    The function to time.
  """
  train, models = load_example(checkout)
  config = _config(models, work, work.length)
  source, target = work.batch()
  key = jax.random.key(0)
  params = _params(models, config, source, target)
  schedule = train.create_learning_rate_schedule(1e-3, 1000)
  state = train.TrainState.create(
    apply_fn=None,
    params=params,
    dynamic_scale=None,
    tx=optax.adamw(schedule, b1=0.9, b2=0.98, eps=1e-9, weight_decay=0.0),
  )
  state = jax_utils.replicate(state)
  step = jax.pmap(
    functools.partial(
      train.train_step,
      config=config,
      learning_rate_fn=schedule,
      label_smoothing=work.label_smoothing,
    ),
    axis_name='batch',
    donate_argnums=(0,),
  )
  batch = {'inputs': np.asarray(source)[None], 'targets': np.asarray(target)[None]}
  keys = jax.random.split(key, 1)

  def run():
    nonlocal state
    state, metrics = step(state, batch, dropout_rng=keys)
    return {'loss': float(metrics['loss'][0] / metrics['denominator'][0])}

  return run


def make_decoding(work: Workload, checkout: str, beam_size: int):
  """Builds the example's beam search with random weights of the example.

  Translations have the length of the sources.

  Args:
    work: the batch.
    checkout: see `load_example`.
    beam_size: 1 is greedy.

  Returns:
    The function to time.
  """
  train, models = load_example(checkout)
  # Its search counts BOS.
  length = work.length + 1
  config = _config(models, work, length).replace(deterministic=True, decode=True)
  source = work.sources()
  params = jax_utils.replicate(
    _params(models, config.replace(decode=False), source, source)
  )
  cache_of = jax.pmap(
    functools.partial(train.initialize_cache, max_decode_len=length, config=config)
  )
  predict = jax.pmap(
    functools.partial(train.predict_step, config=config, beam_size=beam_size),
    static_broadcasted_argnums=(3, 4),
  )

  def run():
    jax.block_until_ready(
      predict(source[None], params, cache_of(source[None]), EOS_ID, length)
    )
    # Up to its limit: with random weights no hypothesis finishes earlier.
    return {'tokens': work.rows * work.length}

  return run


def _config(models, work, max_length):
  """The example's config for a model of the same shape."""
  model = work.model
  return models.TransformerConfig(
    vocab_size=work.vocabulary_size,
    output_vocab_size=work.vocabulary_size,
    share_embeddings=True,
    logits_via_embedding=True,
    dtype=jnp.dtype(model.dtype),
    emb_dim=model.model_dim,
    num_heads=model.num_heads,
    num_layers=model.num_layers,
    qkv_dim=model.model_dim,
    mlp_dim=model.ff_dim,
    max_len=max_length,
    dropout_rate=model.dropout,
    attention_dropout_rate=0.0,
  )


def _params(models, config, source, target):
  model = models.Transformer(config.replace(deterministic=True))
  return jax.jit(lambda: model.init(jax.random.key(0), source, target))()['params']
