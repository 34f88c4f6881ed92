"""Tiny models with random parameters, and what holds for each of them."""

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.command_fixtures import ROOT
from tests.model.conftest import pack, pair
from transformer.data.batch import BOS_ID
from transformer.model.config import ModelConfig
from transformer.ops import linear
from transformer.ops.search import (
  grow_state,
  pad_sources,
  plain_arrays,
  reorder_state,
  with_arrays,
)

N, W = 37, 3
SIZES: dict[str, Any] = {
  'num_layers': 2,
  'model_dim': 16,
  'ff_dim': 11,
  'num_heads': 4,
  'norm_position': 'pre',
  'positions': 'rotary',
}


def build(cls, settings=None, **changes):
  """Returns a model and random parameters."""
  model = cls(ModelConfig(**SIZES | changes), N, **settings or {})
  side = jnp.zeros((1, 2), jnp.int32)
  shapes = jax.eval_shape(model.init, jax.random.key(0), *[side] * 6)['params']
  rng = np.random.default_rng(0)
  return model, jax.tree.map(
    lambda leaf: jnp.asarray(0.3 * rng.normal(size=leaf.shape), jnp.float32), shapes
  )


def logits(model, params, batch):
  """Returns the logits of teacher forcing."""
  return linear.logits(*jax.jit(model.apply)({'params': params}, *batch))


def packed():
  """Returns a row of two pairs, and a row of one, with padding at their ends."""
  return pack([[pair(5, 7, 0), pair(4, 6, 1)], [pair(7, 5, 2)]], 11, 17)


def check_neighbors_and_padding_change_nothing(model, params):
  """Compares a packed row with its pairs in separate rows, without padding."""
  together = logits(model, params, packed())
  first = logits(model, params, pack([[pair(5, 7, 0)]], 5, 7))
  second = logits(model, params, pack([[pair(4, 6, 1)]], 9, 6))
  np.testing.assert_allclose(together[0, :7], first[0], rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(together[0, 7:13], second[0], rtol=1e-4, atol=1e-5)


def check_decoding_is_teacher_forcing(model, params, steps=5):
  """Reorders hypotheses as a search does, and compares each step with a whole forward pass.

  Returns the state of the search.
  """
  rng = np.random.default_rng(0)
  sources = [pair(length, 1, length)[0] for length in (5, 7)]
  rows = [[(source, np.zeros(steps, np.int32))] for source in sources for _ in range(W)]
  batch = pack(rows, 9, steps)

  def apply(method):
    return lambda *given: model.apply({'params': params}, *given, method=method)

  start = jax.jit(apply('start'), static_argnums=3)(
    *(array[::W] for array in batch[:3]), W
  )
  state, source = grow_state(pad_sources(start, 13), steps)
  step = jax.jit(apply('step'))
  inputs_BWT = np.full((2, W, steps), BOS_ID, np.int32)
  for index in range(steps):
    origin_BW1 = rng.integers(0, W, (2, W, 1))
    inputs_BWT = np.take_along_axis(inputs_BWT, origin_BW1, axis=1)
    state = reorder_state(state, jnp.asarray(origin_BW1[..., 0]))
    if index:
      inputs_BWT[:, :, index] = rng.integers(4, N, (2, W))
    found_BWN, new = step(
      inputs_BWT[:, :, index],
      jnp.int32(index),
      plain_arrays(state),
      plain_arrays(source),
    )
    state = with_arrays(state, new)
    wanted = logits(
      model, params, (*batch[:3], inputs_BWT.reshape(2 * W, steps), *batch[4:])
    )
    np.testing.assert_allclose(
      found_BWN, wanted.reshape(2, W, steps, N)[:, :, index], rtol=1e-3, atol=1e-4
    )
  return plain_arrays(state)


def check_eight_devices_are_one(module, settings):
  """Compares three training steps on eight devices and on one, in a separate process."""
  program = (
    'from tests.tools.architectures import sharded_losses; '
    f'sharded_losses.main({module!r}, {settings})'
  )
  done = subprocess.run(
    [sys.executable, '-c', program],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  losses = [[float(loss) for loss in line.split()] for line in done.stdout.splitlines()]
  assert len(losses) == 2 and losses[0][2] < losses[0][0]
  np.testing.assert_allclose(*losses, rtol=1e-4)


def check_commands(train, evaluate, folder, workdir, model):
  """Trains a tiny run, resumes it, and translates with a beam."""
  flags = [f'--config.model.{name}={value}' for name, value in model.items()]
  status, _, err = train(f'--config={folder}/tiny.py', f'--workdir={workdir}', *flags)
  assert status == 0, err
  status, _, err = train(f'--workdir={workdir}', '--config.train.steps=4')
  assert status == 0 and 'step 4/4' in err, err
  (workdir / 'lines').write_text(
    'a man eats .\nthe dog runs through grass .\n', 'utf-8'
  )
  status, out, err = evaluate(
    f'--workdir={workdir}', f'--source={workdir}/lines', '--beam_size=3'
  )
  assert status == 0 and len(out.splitlines()) == 2, err
  return (workdir / 'metrics.jsonl').read_text('utf-8')
