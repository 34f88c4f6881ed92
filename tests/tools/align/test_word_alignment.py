"""Attention of a model that has learnt a task links the words that the task makes of each other."""

import dataclasses
import random
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.config import Config
from transformer.data.batch import EOS_ID, PAD_ID
from transformer.data.vocabulary.vocabularies import SeparateVocabularies
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.likelihoods import forced, pair_batches
from transformer.errors import UserError
from transformer.model.attention_weights import attention_weights
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.runs.loading import Run
from transformer.tools.align.error_rate import count, rates
from transformer.tools.align.links import GoldLinks
from transformer.tools.align.word_alignment import align, check_layer, mean_attention
from transformer.training.step import init_params

WORDS = ['man', 'woman', 'dog', 'bench', 'grass', 'apple', 'child', 'rock', 'shirt', 'climbing']
MOST = 37, 41
SHAPE = ModelConfig(num_layers=2, model_dim=28, ff_dim=38, num_heads=2, norm='pre')
TASKS = {'copy': lambda words: words, 'reversal': lambda words: words[::-1]}


def lines(count, seed):
  rng = random.Random(seed)
  return [' '.join(rng.choices(WORDS, k=rng.randint(3, 7))) for _ in range(count)]


def solved(task, sources):
  return [' '.join(TASKS[task](line.split())) for line in sources]


def gold(task, line):
  """The links that the task makes."""
  places = range(len(line.split()))
  links = frozenset(zip(TASKS[task](list(places)), places, strict=True))
  return GoldLinks(links, links)


def run_of(model, params, vocabulary, batch_size, most=MOST):
  """Returns a run with the most tokens of a source and of a target."""
  config = Config.from_dict({
      'data': {'max_length': most[0]}, 'train': {'tokens_per_batch': most[0]},
      'decode': {'max_extra_length': most[1] - most[0], 'batch_size': batch_size}})
  return Run(Path('nowhere'), config, vocabulary, model, params, [1], None)


@pytest.fixture(scope='module')
def vocabulary():
  # Some words are one piece, and others are several.
  return Vocabulary.train(lines(400, 1), 310)


@pytest.fixture(scope='module')
def model(vocabulary):
  return Transformer(SHAPE, vocabulary.size)


@pytest.fixture(scope='module')
def params(model):
  # Wider than trained ones, so that the weights differ.
  return jax.tree.map(lambda leaf: 3.0 * leaf, jax.jit(lambda: init_params(model, 5))())


def learnt(task, model, vocabulary, steps=400):
  """Returns the parameters of a model that was trained on a task."""
  sources = lines(4000, 2)
  encoded = [[[*ids, EOS_ID] for ids in vocabulary.encode_batch(side)]
             for side in (sources, solved(task, sources))]
  batches = list(pair_batches(*encoded, range(len(sources)), MOST, 64))
  optimizer = optax.adam(optax.linear_schedule(0.01, 0.001, steps))

  @jax.jit
  def update(params, state, source_BS, target_BT):
    def loss(params):
      x_BTD, output_ND = model.apply({'params': params}, *forced(source_BS, target_BT))
      nll_BT = optax.softmax_cross_entropy_with_integer_labels(
          jnp.einsum('BTD,ND->BTN', x_BTD, output_ND), target_BT)
      return jnp.sum(nll_BT * (target_BT != PAD_ID)) / jnp.sum(target_BT != PAD_ID)
    change, state = optimizer.update(jax.grad(loss)(params), state)
    return optax.apply_updates(params, change), state

  params = init_params(model, 3)
  state = optimizer.init(params)
  rng = random.Random(4)
  for _ in range(steps):
    _, *sides = rng.choice(batches)
    params, state = update(params, state, *sides)
  return params


@pytest.mark.long
@pytest.mark.parametrize('task', TASKS)
def test_a_model_that_has_learnt_a_task_links_its_words(vocabulary, task):
  model = Transformer(dataclasses.replace(SHAPE, num_layers=1), vocabulary.size)
  params = learnt(task, model, vocabulary)
  sources = lines(100, 9)
  wanted = [gold(task, line) for line in sources]

  def error_rate(shift):
    found = align([run_of(model, params, vocabulary, 16)], sources, solved(task, sources),
                  shift=shift)
    return rates(np.sum([count(*pair) for pair in zip(wanted, found, strict=True)], axis=0))[0]

  # A blind guess has an error rate of about 80 %. One layer must look at the word that it writes,
  # and cannot look at the one that it has written.
  assert error_rate(False) < 40
  assert error_rate(True) > 50


def test_each_target_word_has_one_link_whatever_shares_its_batch(vocabulary, model, params):
  sources, targets = lines(9, 5), lines(9, 6)
  run = run_of(model, params, vocabulary, 4)
  together = align([run], sources, targets)
  for source, target, links in zip(sources, targets, together, strict=True):
    assert align([run], [source], [target]) == [links]
    assert [j for _, j in sorted(links, key=lambda link: link[1])] == [
        *range(len(target.split()))]
    assert all(0 <= i < len(source.split()) for i, _ in links)
  assert len({i for links in together for i, _ in links}) > 3


def test_a_pair_with_a_blank_side_has_no_links(vocabulary, model, params):
  run = run_of(model, params, vocabulary, 3)
  assert align([run], ['', ' \t', 'dog', 'dog'], ['dog', 'dog', '', '  ']) == [[]] * 4
  assert align([run], [], []) == []


@pytest.mark.parametrize('separate', [False, True])
def test_words_beyond_the_cut_have_no_links(vocabulary, model, params, separate):
  # With separate vocabularies, the words of targets have more pieces.
  sides = SeparateVocabularies(
      vocabulary, Vocabulary.train(lines(400, 1), 285) if separate else vocabulary)
  source, target = ' '.join(WORDS * 3), ' '.join(WORDS * 4)
  links, = align([run_of(model, params, sides, 2, (17, 23))], [source], [target])
  kept = [len(side.decode(side.encode(line)[:most - 1]).split())
          for side, line, most in zip(sides, (source, target), (17, 23), strict=True)]
  assert len({i for i, _ in links}) > 1 and all(i < kept[0] for i, _ in links)
  assert {j for _, j in links} == {*range(kept[1])} and kept[1] < 40


def rows(vocabulary, line, length):
  ids = [*vocabulary.encode(line), EOS_ID]
  return np.array([ids + [PAD_ID] * (length - len(ids))], np.int32)


def test_attention_is_the_mean_of_layers_heads_and_models(vocabulary, model, params):
  other = jax.tree.map(lambda leaf: 0.5 * leaf, params)
  batch = rows(vocabulary, 'man dog', 11), rows(vocabulary, 'apple rock child', 13)
  cross, two = (attention_weights(model, each, *forced(*batch)).cross for each in (params, other))
  for layer in (None, 1, 2):
    both = jnp.stack([cross, two])
    mean = jnp.mean(both if layer is None else both[:, layer - 1:layer], axis=(0, 1, 3))
    for shift in (False, True):
      found = mean_attention([model, model], layer, shift)([params, other], *batch)
      np.testing.assert_allclose(
          found, np.concatenate([mean[:, 1:], 0 * mean[:, :1]], 1) if shift else mean, atol=1e-5)


@pytest.mark.parametrize('layer', [0, 3, -1])
def test_a_layer_that_the_decoder_lacks_is_refused(vocabulary, model, layer):
  deeper = Transformer(dataclasses.replace(SHAPE, num_layers=3), vocabulary.size)
  with pytest.raises(UserError, match=f'must be a layer .* from 1 .* to 2; got {layer}'):
    check_layer([deeper, model], layer)
