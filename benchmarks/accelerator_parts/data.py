"""Training from text files, and the same training steps with batches already on the device."""

import contextlib
import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from accelerator_parts.fake_cudnn import use_fake_cudnn_without_gpu
from accelerator_parts.models import work_of
from this_project import parts_of_update

from transformer.data.config import DataConfig
from transformer.data.corpora import make_run_batches, open_corpora
from transformer.data.vocabulary.building import VOCABULARY_PAIRS
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.experiment.meter import Meter, utilization_per_token_rate
from transformer.model.transformer import Transformer
from transformer.tools.phrasebook import pairs_of
from transformer.training.objective import cross_entropy

_LENGTH = 256  # maximum target positions in a row
_RESIDENT = 8  # batches that stay on the device


def measure(
  model: str, tokens: int, seconds: float, pairs: int
) -> Iterator[dict[str, Any]]:
  """Yields a row for batches read and packed from text, and one for batches on the device.

  Args:
    model: the model.
    tokens: target positions in a batch.
    seconds: the time of training from files; the other row takes a third of it.
    pairs: number of sentence pairs of the phrasebook in the text files.
  """
  use_fake_cudnn_without_gpu()
  with tempfile.TemporaryDirectory() as folder:
    batches, vocabulary = _open(Path(folder), tokens, pairs)
    rows, _, length = batches.shape
    work = work_of(model, rows, length)._replace(vocabulary_size=vocabulary.size)
    init, step = parts_of_update(work)
    first = [batches[number] for number in range(_RESIDENT)]
    program = step.lower(jax.eval_shape(init), first[0]).compile()
    speed = utilization_per_token_rate(
      Transformer(work.model, vocabulary.size), 1, cross_entropy(work.label_smoothing)
    )

    def train(stream, seconds):
      return _train(
        jax.jit(init)(), program, stream, Meter({}, rows * length, speed), seconds
      )

    shape = {'rows': rows, 'length': length, 'pairs': pairs}
    with contextlib.closing(batches.iterate(0, 10**9)) as stream:
      yield {
        'batches': 'read and packed while training',
        **shape,
        **train(stream, seconds),
      }
    yield {
      'batches': 'on the device',
      **shape,
      **train(itertools.cycle(jax.device_put(first)), seconds / 3),
    }


def _open(folder: Path, tokens: int, pairs: int):
  """Writes the phrasebook as text; returns its training batches and a vocabulary."""
  for split, some in (
    ('train', pairs_of('train')[:pairs]),
    ('valid', pairs_of('test')[:100]),
  ):
    for language, side in zip(('en', 'fr'), zip(*some, strict=True), strict=True):
      lines = ''.join(f'{line}\n' for line in side)
      (folder / f'{split}.{language}').write_text(lines, encoding='utf-8')
  config = DataConfig(
    source='text',
    dir=str(folder),
    valid='valid',
    vocabulary_size=600,
    max_length=_LENGTH,
  )
  corpora = open_corpora(config)
  vocabulary = Vocabulary.train(
    corpora.training_text(VOCABULARY_PAIRS), config.vocabulary_size
  )
  return make_run_batches(
    config, corpora, vocabulary, tokens, seed=0
  ).batches, vocabulary


def _train(state, program, stream, meter: Meter, seconds: float) -> dict[str, Any]:
  """Trains for a given time, and returns the speed metrics of `train.py`.

  The metrics of a training step are fetched a step late, as in `train.py`.
  """
  end, steps, metrics = None, 0, None
  for batch in meter.measure_wait(stream):
    previous = metrics
    state, metrics = program(state, jax.device_put(batch))
    if previous is not None:
      meter.add(jax.device_get(previous))
      steps += 1
      # The first training step is not timed.
      end = end or time.perf_counter() + seconds
    if end and time.perf_counter() > end:
      break
  found = meter.flush(0.0)
  return {
    'steps': steps - 1,
    'seconds': seconds,
    'fill': found['train/fill'],
    'loss': found['train/loss'],
    'data_wait': found['train/data_wait'],
    'tokens_per_second': found['tokens_per_second'],
    'utilization': found.get('flops_utilization'),
  }
