"""The training steps and searches of this project, as its commands run them."""

import functools
import os

import jax
import numpy as np
from workload import Workload

from transformer.data.batch import Batch
from transformer.decoding.config import DecodeOptions
from transformer.decoding.decoder_search import DecoderSearch, SearchInputs
from transformer.model.transformer import Transformer, init_params
from transformer.ops.search import run_search
from transformer.system import machine
from transformer.system.machine import set_reproducible_flags
from transformer.training.config import OptimizerConfig, TrainConfig
from transformer.training.mesh import sentence_mesh
from transformer.training.objective import cross_entropy
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.step import init_state, make_train_step


def make_training_step_benchmark(work: Workload, reproducible: bool = False):
  """Builds a training step as in `train.py`, on one device.

  Args:
    work: the model and the batch.
    reproducible: as `config.train.reproducible`.

  Returns:
    The function to time.
  """
  machine.keep_freed_memory()
  if reproducible:
    set_reproducible_flags(os.environ)
  init, step = parts_of_update(work)
  state = jax.jit(init)()
  batch = jax.device_put(packed_batch(work))
  step = step.lower(state, batch).compile()
  memory = step.memory_analysis()

  def run():
    nonlocal state
    state, metrics = step(state, batch)
    notes = {'loss': float(metrics['loss'] / metrics['weight'])}
    if memory is not None:
      notes['temporary_bytes'] = memory.temp_size_in_bytes
    if statistics := jax.devices()[0].memory_stats():
      notes['device_bytes'] = statistics['peak_bytes_in_use']
    return notes

  return run


def parts_of_update(work: Workload):
  """Returns the function () -> state, and the jitted (state, batch) -> (state, metrics)."""
  model = Transformer(work.model, work.vocabulary_size)
  config = OptimizerConfig()
  optimizer = make_optimizer(config, make_schedule(config, work.model.model_dim, 1000))
  return (
    lambda: init_state(init_params(model, 0), optimizer, TrainConfig()),
    jax.jit(
      make_train_step(
        model,
        optimizer,
        TrainConfig(),
        seed=0,
        objective=cross_entropy(work.label_smoothing),
        mesh=sentence_mesh(1),
      ),
      donate_argnums=0,
    ),
  )


def packed_batch(work: Workload) -> Batch:
  """Returns full rows of random tokens, each with `work.sentences_a_row` sentence pairs."""
  source, target = work.batch()
  part = -(-work.length // work.sentences_a_row)
  place = np.broadcast_to(np.arange(work.length, dtype=np.int32), source.shape)
  segments, positions = place // part + 1, place % part
  return Batch(source, segments, positions, target, segments, positions)


def make_decoding(work: Workload, beam_size: int, dtype: str = 'trained'):
  """Builds a search of all sentences in one batch; translations have the length of the sources.

  Args:
    work: the batch.
    beam_size: 1 is greedy.
    dtype: as `config.decode.dtype`.

  Returns:
    The function to time.
  """
  machine.keep_freed_memory()
  model = Transformer(work.model, work.vocabulary_size)
  params = random_params(work)
  search = whole_search(
    model,
    DecodeOptions(
      beam_size=beam_size,
      alpha=0.6 if beam_size > 1 else 0.0,
      max_extra_length=1,
      dtype=dtype,
    ),
  )
  source = work.sources()
  limits = np.full(work.rows, work.length, np.int32)

  def run():
    best = jax.device_get(search(params, source, limits))
    return {
      'tokens': int(best.lengths[:, 0].sum()),
      'words': best.tokens[:, 0, : work.length].tolist(),
    }

  return run


def whole_search(model: Transformer, decoding: DecodeOptions):
  """Returns a search as one program: (params, source_BS, limits_B) -> `Hypotheses`."""
  search = DecoderSearch([model], decoding)

  def run(params, source_BS, limits_B):
    states, sources = search.start([params], source_BS)
    inputs = SearchInputs(sources, limits_B)
    most = source_BS.shape[1] + decoding.max_extra_length
    return run_search(search.build_search([params], inputs, states, most))

  return jax.jit(run)


def random_params(work: Workload):
  """Returns the parameters with which all systems decode."""
  model = Transformer(work.model, work.vocabulary_size)
  return jax.jit(functools.partial(init_params, model, 0))()
