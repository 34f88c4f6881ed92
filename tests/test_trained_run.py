"""A run in Python returns the numbers of the packages behind it; user errors are one line."""

import copy
import dataclasses
import functools
import math
import pickle
from pathlib import Path

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import transformer
from tests.toy_translation import (
  DECODE,
  MAX_LENGTH,
  ROUNDING,
  make_model,
  make_params,
  make_vocabulary,
  sentences,
)
from transformer.config import Config
from transformer.data.batch import EOS_ID, Batch
from transformer.data.vocabulary.vocabularies import SeparateVocabularies
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import resolve_decode_options
from transformer.decoding.constraint import Constraint
from transformer.decoding.translator import Translation, Translator
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.trained_run import TrainedRun
from transformer.training.mesh import sentence_mesh
from transformer.training.objective import cross_entropy
from transformer.training.step import init_state, make_train_step

LONG = 'the cat ' * MAX_LENGTH
ZEROS = np.zeros((6, 2, 3), np.int32)
ZEROS_OF = Batch(*ZEROS)._replace


@pytest.fixture(scope='module')
def run():
  """A run of the toy model, with batches of two lines."""
  vocabulary = make_vocabulary()
  model = make_model(vocabulary, layers=2)
  config = Config.from_dict(
    {
      'data': {'max_length': MAX_LENGTH},
      'train': {'tokens_per_batch': MAX_LENGTH},
      'model': dataclasses.asdict(model.config) | {'dropout': 0.0},
      'decode': {
        'batch_size': 2,
        'max_extra_length': DECODE.max_extra_length,
        'beam_size': 2,
      },
    }
  )
  model = model.clone(config=config.model)
  return TrainedRun(Path('nowhere'), config, vocabulary, model, make_params(model), [7])


@pytest.fixture(scope='module')
def pairs():
  return ([line[:30] for line in sentences(5, seed=seed)] for seed in (1, 2))


@pytest.fixture(scope='module')
def batch(run, pairs):
  return run.batch(*map(list, pairs))


def test_other_samples_with_the_same_settings_compile_nothing(run):
  lines, draws, traced = ['a cat', '', 'the dog runs'], [], []

  def listen(event, seconds, **_):
    traced.extend([event] * event.endswith('jaxpr_trace_duration'))

  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    for seed, compiles in ((1, True), (2, False), (1, False)):
      draws.append(dataclasses.replace(run).translate(lines, sample=True, seed=seed))
      assert bool(traced) == compiles
      traced.clear()
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)
  assert draws[0] == draws[2] != draws[1] and draws[0][1] == '' and len(draws[0]) == 3
  assert run.translate([]) == []


def test_the_gradient_of_the_loss_matches_a_training_step(run, batch):
  loss, gradient = jax.jit(jax.value_and_grad(run.loss))(run.params, batch)
  optimizer = optax.sgd(1.0)
  step = jax.jit(
    make_train_step(
      run.model,
      optimizer,
      run.config.train,
      objective=cross_entropy(run.config.train.label_smoothing),
      seed=0,
      mesh=sentence_mesh(1),
    )
  )
  state, metrics = step(init_state(run.params, optimizer, run.config.train), batch)
  assert float(loss) == pytest.approx(
    float(metrics['loss'] / metrics['weight']), rel=1e-6
  )
  # As of the mean token.
  chex.assert_trees_all_close(
    jax.tree.map(jnp.subtract, run.params, state.params),
    gradient,
    rtol=0,
    atol=ROUNDING / 36,
  )


def test_the_plain_loss_is_the_mean_log_probability_of_a_token(run):
  sources, targets = ['a cat', '', LONG, 'old trees'], ['the dog', 'a', 'a', '']
  scores, pieces = run.score(sources, targets), run.score(sources, targets, tokens=True)
  assert (
    np.isnan(scores).tolist()
    == [False, False, True, False]
    == [not line for line in pieces]
  )
  kept = [0, 1, 3]
  for number in kept:
    assert [piece for piece, _ in pieces[number]][-1] == '</s>'
    assert sum(score for _, score in pieces[number]) == pytest.approx(
      scores[number], rel=1e-5
    )
  batch = run.batch(*([side[number] for number in kept] for side in (sources, targets)))
  loss = jax.jit(functools.partial(run.loss, smoothing=0.0))(run.params, batch)
  assert float(loss) == pytest.approx(
    -scores[kept].sum() / np.count_nonzero(batch.target_tokens), rel=1e-5
  )
  assert run.loss(run.params, run.batch([], [])) == 0.0 and run.score([], []).shape == (
    0,
  )


def test_a_loss_has_the_requested_smoothing_and_by_default_the_smoothing_of_the_run(
  run, batch
):
  plain, own, tenth, fifth = jax.jit(
    lambda params: [
      run.loss(params, batch, smoothing=smoothing)
      for smoothing in (0.0, None, 0.1, 0.2)
    ]
  )(run.params)
  assert run.config.train.label_smoothing == 0.1 and own == pytest.approx(tenth)
  numbered = batch._replace(corpus_ids=np.ones_like(batch.target_tokens))
  assert run.loss(run.params, numbered) == pytest.approx(own)
  # It is linear in the weight of the uniform distribution.
  assert tenth - plain > 0.01
  np.testing.assert_allclose(fifth - plain, 2 * (tenth - plain), rtol=1e-4)


def test_each_side_has_the_pieces_of_its_vocabulary(run):
  letters = [
    f'{number:08b}'.replace('0', 'o').replace('1', 'l') for number in range(200)
  ]
  source, target = run.vocabulary, Vocabulary.train(letters * 3, 270)
  model = Transformer(
    dataclasses.replace(run.model.config, share_embeddings=False),
    target.size,
    source.size,
  )
  separate = dataclasses.replace(
    run,
    vocabulary=SeparateVocabularies(source, target),
    model=model,
    params=make_params(model),
  )
  line, text = 'the old cat', 'lol oloo'
  ids = [*target.encode(text), EOS_ID]
  wanted = [*map(target.piece, ids)]
  assert wanted != [*map(source.piece, ids)]
  (scored,) = separate.score([line], [text], tokens=True)
  found = separate.attention(line, text)
  assert [piece for piece, _ in scored] == found.target == wanted
  assert found.source == [*map(source.piece, source.encode(line)), '</s>']
  batch = separate.batch([line], [text])
  assert batch.target_tokens[0, : len(ids)].tolist() == ids

  class Rejecting(Constraint):
    def sentence_arrays(self, vocabulary, limits, max_length, offset):
      raise transformer.UserError(f'none of {vocabulary.size} pieces')

  with pytest.raises(transformer.UserError, match=f'none of {target.size} pieces'):
    separate.translate([line], constraint=Rejecting())


def test_a_line_is_encoded_the_same_in_any_batch_and_its_padding_is_masked(run):
  lines = ['a cat', ' '.join(['the cat'] * 3), 'the dog runs', '']
  output, mask = run.encode(lines)
  ids = [[*tokens, EOS_ID] for tokens in run.vocabulary.encode_batch(lines)]
  assert (
    mask.sum(1).tolist() == list(map(len, ids))
    and mask.shape[1] == max(map(len, ids)) > 8
  )
  assert not output[~mask].any()
  for number in (0, 3):
    tokens = np.array([ids[number]], np.int32)
    alone = jax.jit(functools.partial(run.model.apply, method='encode'))(
      {'params': run.params},
      tokens,
      np.ones_like(tokens),
      np.arange(tokens.size, dtype=np.int32)[None],
    )
    np.testing.assert_allclose(output[number, mask[number]], alone[0], atol=1e-5)
  assert run.encode([]).output.shape == (0, 0, run.config.model.model_dim)


@pytest.mark.parametrize('side', ['encoder', 'decoder'])
def test_layers_have_the_shape_and_mask_of_the_final_output(run, side):
  sources, targets = ['a cat', 'the dog runs', ''], ['the old cat', '', 'a tree']
  given = [sources] if side == 'encoder' else [sources, targets]
  method = run.encode if side == 'encoder' else run.decode
  final, layers = method(*given), method(*given, layers=True)
  ids = run.vocabulary.encode_batch(given[-1])
  np.testing.assert_array_equal(final.mask.sum(1), [len(line) + 1 for line in ids])
  np.testing.assert_array_equal(final.mask, layers.mask)
  assert list(layers.output) == ['embedding', f'{side}_0', f'{side}_1']
  for output in (final.output, *layers.output.values()):
    assert output.shape == (*final.mask.shape, run.config.model.model_dim)
    assert not output[~final.mask].any() and output[final.mask].any(-1).all()


def test_logits_of_the_last_layer_give_the_log_probability_of_each_token(run):
  sources, targets = ['a cat', 'the dog runs'], ['the old cat', 'a']
  output, mask = run.decode(sources, targets, layers=True)
  log_probs = jax.nn.log_softmax(jax.jit(run.logits)(output['decoder_1']))
  tokens = run.batch(sources, targets).target_tokens[:, : mask.shape[1]]
  chosen = np.take_along_axis(np.asarray(log_probs), tokens[..., None], -1)[..., 0]
  np.testing.assert_allclose(
    (chosen * mask).sum(1), run.score(sources, targets), atol=ROUNDING
  )


def test_the_loss_of_a_batchs_embeddings_is_its_loss_and_follows_its_gradient(
  run, batch
):
  given = run.embed(batch)
  loss, gradient = jax.jit(jax.value_and_grad(run.loss_of_embeddings))(given, batch)
  plain = jax.jit(functools.partial(run.loss, smoothing=0.0))(run.params, batch)
  assert float(loss) == pytest.approx(float(plain), rel=1e-5)
  assert not gradient.source[batch.source_segments == 0].any()
  assert not gradient.target[batch.target_segments == 0].any()
  # Along the gradient, the loss rises by the step times its length squared.
  squares = sum(float(jnp.sum(leaf**2)) for leaf in gradient)
  step = 1e-3 / squares**0.5

  @jax.jit
  def moved(distance):
    other = jax.tree.map(lambda x, slope: x + distance * slope, given, gradient)
    return run.loss_of_embeddings(other, batch)

  difference = float(moved(step)) - float(moved(-step))
  assert difference == pytest.approx(2 * step * squares, rel=0.02)


class Unigram(nn.Module):
  """A model without an encoder, layers and parts that have names."""

  config: ModelConfig
  vocabulary_size: int

  @nn.compact
  def __call__(self, *batch, deterministic=True):
    shape = self.vocabulary_size, self.config.model_dim
    table = self.param('table', nn.initializers.normal(1.0), shape)
    return table[batch[3]], table


@pytest.mark.parametrize(
  ('call', 'fact'),
  [
    (lambda run: run.encode(['a']), 'lacks encode'),
    (
      lambda run: run.decode(['a'], ['b'], layers=True),
      'no recognizable embedding or layers',
    ),
    (lambda run: run.logits(np.zeros((1, 14))), 'lacks layer_logits'),
    (lambda run: run.embed(run.batch(['a'], ['b'])), 'lacks encode'),
  ],
)
def test_a_model_without_the_parts_says_so_in_one_line(run, call, fact):
  model = Unigram(run.config.model, run.vocabulary.size)
  other = dataclasses.replace(run, model=model, params=init_params(model, 0))
  with pytest.raises(transformer.UserError, match=f'Unigram .*{fact}'):
    call(other)
  assert other.decode(['a'], ['b']).output.any()


def test_attention_to_long_sentences_is_truncated_and_logged(run, caplog):
  found = run.attention('the old cat', LONG)
  most = MAX_LENGTH + DECODE.max_extra_length
  assert len(found.target) == most and found.target[-1] == '</s>'
  assert found.cross.shape[2:] == (most, len(found.source))
  assert sum('were truncated to' in message for message in caplog.messages) == 1


def test_rows_of_attention_sum_to_one_and_have_the_pieces(run):
  found = run.attention('the old cat', 'a dog')
  s, t, heads = len(found.source), len(found.target), run.config.model.num_heads
  assert found.source == [
    *map(run.vocabulary.piece, run.vocabulary.encode('the old cat')),
    '</s>',
  ]
  assert found.target[-1] == '</s>' and s != t
  for weights, shape in (
    (found.encoder, (s, s)),
    (found.decoder, (t, t)),
    (found.cross, (t, s)),
  ):
    assert weights.shape == (2, heads, *shape)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
  assert not np.triu(found.decoder, 1).any()  # None has looked ahead.


@pytest.mark.parametrize(
  ('call', 'fact'),
  [
    (
      lambda run: run.translate('a cat'),
      "such as ['A line.'], that UTF-8 can encode; got 'a cat'",
    ),
    (lambda run: run.translate({'a', 'b'}), 'expected a list of lines'),
    (lambda run: run.translate(['a', None]), 'expected str instance, NoneType found'),
    (lambda run: run.translate(['a', '\ud800']), 'that UTF-8 can encode'),
    (lambda run: run.translate(None), 'expected a list of lines'),
    (lambda run: run.encode('a cat'), "got 'a cat'"),
    (
      lambda run: run.translate(['a'], beam=8),
      'there is no option beam; did you mean beam_size?',
    ),
    (
      lambda run: run.translate(['a'], n_best=8),
      'no option n_best; did you mean nbest?',
    ),
    (
      lambda run: run.translate(['a'], max_extra_length=8),
      'no option max_extra_length',
    ),
    (
      lambda run: run.translate(['a'], beam_size='8'),
      "beam_size must be of type int; got '8'",
    ),
    (
      lambda run: run.translate(['a'], beam_size=0),
      'beam_size must be at least 1; got 0',
    ),
    (
      lambda run: run.translate(['a'], nbest=3),
      'nbest=3 exceeds beam_size=2; set beam_size=3',
    ),
    (lambda run: run.translate(['a'], nbest=0), 'nbest must be at least 1; got 0'),
    (
      lambda run: run.translate(['a'], seed=1, top_k=2),
      'only sampling uses top_k and seed',
    ),
    (
      lambda run: run.translate(['a'], sample=True, seed=2**32),
      'below 4294967296; got 4294967296',
    ),
    (lambda run: run.score(['a'], ['b', 'c']), 'got 1 sources and 2 targets'),
    (
      lambda run: run.encode(['a', LONG]),
      'line 2 of the source has 118 tokens, more than the limit of a search, 29',
    ),
    (
      lambda run: run.batch(['a'], [LONG]),
      'line 1 of the reference has 118 tokens, more than the limit of a search, 36',
    ),
    (lambda run: run.attention(['a'], 'b'), 'expected str instance, list found'),
    (lambda run: transformer.load('nowhere'), 'nowhere holds no run'),
    (
      lambda run: run.translate(['a'], beam_size=np.float32(2)),
      'must be of type int; got 2.0',
    ),
    (
      lambda run: run.translate(['a'], sample=np.int64(1)),
      'sample must be of type bool; got 1',
    ),
    *(
      (
        lambda run, path=path: transformer.load(path),
        f'{path!r} cannot be used as a path: it must',
      )
      for path in (None, 5, b'run', ['run'])
    ),
    (lambda run: transformer.load('x' * 300), '…'),
    (lambda run: transformer.load('a\0b\nc'), r'a\x00b\nc holds no run'),
    (lambda run: transformer.load('~no-such/run'), '~no-such/run holds no run'),
    (
      lambda run: transformer.load('nowhere', average=0),
      'average must be at least 1; got 0',
    ),
    *(
      (
        lambda run, smoothing=smoothing: run.loss(
          run.params, Batch(*ZEROS), smoothing=smoothing
        ),
        fact,
      )
      for smoothing, fact in (
        (2.0, 'smoothing must be at least 0 and below 1; got 2.0'),
        (-0.1, 'at least 0'),
        (float('nan'), 'at least 0'),
        (1, 'below 1'),
        ('x', 'smoothing must be of type float'),
        (True, 'of type float'),
      )
    ),
    *(
      (
        lambda run, batch=batch: run.loss(run.params, batch),
        'expected a Batch of integers',
      )
      for batch in (
        None,
        'x',
        Batch(*'abcdef'),
        Batch(*np.zeros((6, 2, 3))),
        tuple(ZEROS),
        ZEROS_OF(source_tokens=None),
        ZEROS_OF(corpus_ids=np.zeros((2, 3))),
      )
    ),
    *(
      (
        lambda run, batch=batch: run.loss(run.params, batch),
        'must have shapes [row, length]',
      )
      for batch in (
        Batch(*ZEROS[:, 0]),
        ZEROS_OF(target_tokens=ZEROS[0, :, 1:]),
        ZEROS_OF(source_segments=ZEROS[0, 1:]),
        ZEROS_OF(corpus_ids=ZEROS[0, :, 1:]),
      )
    ),
    (
      lambda run: run.logits(np.zeros((2, 5))),
      'must have shape [..., 14]; got (2, 5)',
    ),
    (
      lambda run: run.loss_of_embeddings(
        run.embed(run.batch(['a'], ['b'])), run.batch(['a', 'b'], ['b', 'a'])
      ),
      'embeddings must be as run.embed returns them',
    ),
    (lambda run: run.embed('x'), 'expected a Batch of integers'),
    (lambda run: dataclasses.replace(run, params={}), 'as the config says; it is None'),
  ],
)
def test_user_error_is_a_one_line_message(run, call, fact):
  with pytest.raises(transformer.UserError) as error:
    call(run)
  message = str(error.value)
  assert fact in message and message.isprintable() and len(message) < 450, message


def test_numbers_of_numpy_and_jax_are_numbers(run):
  lines = ['a cat', '', 'the dog runs']
  assert run.translate(
    lines,
    sample=np.True_,
    seed=np.uint32(1),
    beam_size=jnp.int32(1),
    nbest=np.int16(1),
    alpha=np.float64(0.6),
    temperature=np.float32(1),
    top_k=np.uint8(0),
    batch_size=np.int64(2),
    top_p=jnp.float32(1),
    dtype=np.str_('trained'),
  ) == run.translate(lines, sample=True, seed=1, nbest=1)
  batch = run.batch(lines, lines)
  one, other = (
    jax.eval_shape(functools.partial(run.loss, smoothing=smoothing), run.params, batch)
    for smoothing in (np.float64(0.25), jnp.float32(0.25))
  )
  assert one == other


def test_a_run_is_pickled_and_copied_with_its_parameters_those_replaced_in_python_too(
  run,
):
  lines = ['a cat', 'the dog runs']
  other = dataclasses.replace(
    run, params=jax.tree.map(lambda leaf: leaf + 0.25, run.params)
  )
  ensemble, scores = dataclasses.replace(run, others=(other,)), []
  for each in (run, other, ensemble):
    scores.append(each.score(lines, lines).tolist())
    for same in (
      pickle.loads(pickle.dumps(each)),
      copy.deepcopy(each),
      copy.copy(each),
    ):
      assert repr(same) == repr(each)
      assert same.score(lines, lines).tolist() == scores[-1]
  assert len(set(map(tuple, scores))) == 3


def test_a_diverged_run_names_the_line_by_its_number_in_the_whole_text(
  run, monkeypatch
):
  def translate(self, params, lines, decoding, **_):
    return [Translation('', score, False, ()) for score in (-1.0, math.nan)]

  monkeypatch.setattr(Translator, '__call__', translate)
  with pytest.raises(
    transformer.UserError, match='the log-probabilities for line 17 are not'
  ):
    run.translations(
      ['a', 'b'], resolve_decode_options(run.config.decode, 0), offset=15
    )


def test_an_unknown_name_of_the_package_is_an_attribute_error():
  with pytest.raises(AttributeError, match='no attribute'):
    transformer.lode()
