"""Translation: lines stay aligned, and a sentence does not depend on its batch."""

import dataclasses
import random
import types
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.collectives import collectives_of
from tests.toy_translation import (
  DECODE,
  MAX_LENGTH,
  WORDS,
  make_model,
  make_params,
  make_vocabulary,
  sentences,
  whole_search,
)
from transformer.data.batch import BOS_ID, EOS_ID
from transformer.decoding.config import SampleConfig
from transformer.decoding.constraint import FREE
from transformer.decoding.ensemble import make_translator, translate_with
from transformer.decoding.likelihoods import score_pairs
from transformer.decoding.prefixes import Prefixes
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.training.config import MeshConfig
from transformer.training.mesh import make_mesh, sentence_sharding, state_shardings
from transformer.training.step import init_params


@pytest.fixture(scope='module')
def vocabulary():
  return make_vocabulary()


@pytest.fixture(scope='module')
def model(vocabulary):
  return make_model(vocabulary)


@pytest.fixture(scope='module')
def params(model):
  return make_params(model)


def on_mesh(model, vocabulary, config=DECODE, **options):
  """Returns a translator whose batches four devices share; they are not refilled."""
  config = dataclasses.replace(config, batch_size=8)
  rows = sentence_sharding(make_mesh(MeshConfig(), 8), 8)
  assert rows.mesh.size == 4 and not rows.is_fully_replicated
  return Translator(model, vocabulary, config, MAX_LENGTH, rows=rows, **options)


@pytest.fixture(scope='module', params=['greedy', 'beam', 'mesh'])
def translator(request, model, vocabulary):
  if request.param == 'mesh':
    return on_mesh(model, vocabulary)
  beams = {'greedy': 1, 'beam': 3}[request.param]
  config = dataclasses.replace(DECODE, beam_size=beams)
  return Translator(model, vocabulary, config, MAX_LENGTH, threads=2)


def sampler(model, vocabulary, seed=0, **changes):
  config = dataclasses.replace(DECODE, **{'beam_size': 2, 'sample': True, **changes})
  return Translator(model, vocabulary, config, MAX_LENGTH, seed)


@pytest.mark.long(but=('beam',))
def test_answers_keep_the_order_of_the_lines_alone_and_in_company(translator, params):
  lines = sentences(7)
  together = translator(params, [*lines, *sentences(9, seed=3)])[:7]
  assert len({answer.text for answer in together}) > 4
  order = random.Random(2).sample(range(7), 7)
  assert translator(params, [lines[i] for i in order]) == [together[i] for i in order]
  assert translator(params, lines[3:4]) == together[3:4] and translator(params, []) == []


def texts_and_scores(answers):
  nbest = [pair for answer in answers for pair in answer.nbest]
  return [answer.text for answer in answers], [text for text, _ in nbest], np.array(
      [score for _, score in nbest])


@pytest.mark.long(but=('free-3', 'samples-1'))
@pytest.mark.parametrize('beams', [1, 3])
@pytest.mark.parametrize('kind', ['free', 'prefixes', 'samples', 'ensemble'])
def test_a_pool_and_a_mesh_find_the_same(model, vocabulary, params, kind, beams):
  lines = [*sentences(23), '', *sentences(4, seed=2)]
  config = dataclasses.replace(DECODE, beam_size=beams, sample=kind == 'samples')
  models = model
  if kind == 'ensemble':
    models, params = [model, model], (params, jax.tree.map(lambda leaf: 0.9 * leaf[::-1], params))
  constraint = Prefixes(['a', ''] * 14) if kind == 'prefixes' else FREE
  one, three = (Translator(models, vocabulary, config, MAX_LENGTH, 3, threads=threads, nbest=beams)(
      params, lines, 5, constraint) for threads in (1, 3))
  assert one == three
  mesh = on_mesh(models, vocabulary, config, seed=3, nbest=beams)(params, lines, 5, constraint)
  found, wanted = texts_and_scores(one), texts_and_scores(mesh)
  assert found[:2] == wanted[:2] and len(set(found[0])) > 5
  np.testing.assert_allclose(found[2], wanted[2], rtol=1e-5)


@pytest.mark.long(but=('beam',))
def test_prefixes_hold_and_leave_other_sentences_alone(translator, params):
  lines = sentences(7)
  prefixes = ['', 'the old ca', '', 'a', 'trees', '', 'x y']
  free = translator(params, lines)
  begun = translator(params, lines, constraint=Prefixes(prefixes))
  for before, answer, prefix in zip(free, begun, prefixes, strict=True):
    assert answer.text.startswith(prefix)
    # A free sentence goes through the same program as before, bit for bit.
    assert (answer == before) == (prefix == '')
  assert translator(params, lines[1:2], constraint=Prefixes(prefixes[1:2])) == begun[1:2]
  with pytest.raises(UserError, match=r'beginning of translation 2 must have fewer tokens'):
    translator(params, lines, constraint=Prefixes(['', 'x' * 99, *[''] * 5]))


def test_a_constraint_of_ones_own_holds_alone_and_in_company(model, vocabulary, params, own_parts):
  counting = types.SimpleNamespace(source=vocabulary.source, target=types.SimpleNamespace(
      size=vocabulary.size, decode=lambda tokens: str(np.count_nonzero(tokens))))
  translate = Translator(model, counting, DECODE, MAX_LENGTH, threads=2)
  lines, most = sentences(7), [0, 12, 3, 0, 99, 12, 1]
  constraint = import_module('my_constraints').MostTokens
  free = translate(params, lines)
  answers = translate(params, lines, constraint=constraint(most))
  for before, answer, number in zip(free, answers, most, strict=True):
    # A free sentence goes through the same program as before, bit for bit.
    assert answer == before if number == 0 else int(answer.text) <= number
  assert sum(answer.text != before.text for before, answer in zip(free, answers, strict=True)) > 1
  assert translate(params, lines[1:2], constraint=constraint(most[1:2])) == answers[1:2]


def test_draws_depend_on_the_seed_and_on_the_numbers_of_the_lines(model, vocabulary, params):
  run = types.SimpleNamespace(
      model=model, params=params, vocabulary=vocabulary,
      config=types.SimpleNamespace(data=types.SimpleNamespace(max_length=MAX_LENGTH)))
  decode = SampleConfig(sample=True, beam_size=1, max_extra_length=2, batch_size=2)
  seven, eight = (make_translator([run], decode, seed) for seed in (7, 8))

  def drawn(translate, first):
    return [answer.text for answer in translate_with([run], translate, ['a cat'] * 2, first)]

  texts = drawn(seven, 0)
  assert drawn(seven, 1)[0] == texts[1] != texts[0]
  assert not set(drawn(eight, 0)) & set(texts)


@pytest.mark.long
def test_samples_depend_on_the_sentence_its_number_and_the_seed_alone(model, vocabulary, params):
  lines = [*sentences(6), sentences(1)[0]]
  translate = sampler(model, vocabulary)
  answers = translate(params, lines)
  assert sampler(model, vocabulary)(params, lines) == answers
  others = sampler(model, vocabulary, seed=1)(params, lines)
  assert all(a.text != b.text for a, b in zip(answers, others, strict=True))
  # Its first and its last line are the same.
  assert answers[0].text != answers[-1].text
  # Other company in the batch, and another row of it; then none.
  assert translate(params, [*lines, *sentences(9, seed=3)])[:7] == answers
  assert translate(params, [*[''] * 3, lines[3], *[''] * 3])[3] == answers[3]


@pytest.mark.long
def test_samples_without_chance_are_greedy(model, vocabulary, params):
  lines = [line[:17] for line in sentences(7)]
  greedy = Translator(model, vocabulary, dataclasses.replace(DECODE, beam_size=1), MAX_LENGTH)
  wanted = greedy(params, lines)
  for changes in ({'top_k': 1}, {'top_p': 1e-6}, {'temperature': 1e-4}):
    found = sampler(model, vocabulary, **changes)(params, lines)
    assert [answer.text for answer in found] == [answer.text for answer in wanted]
    np.testing.assert_allclose([answer.score for answer in found],
                               [answer.score for answer in wanted], rtol=1e-4)


def test_lines_without_words_stay_empty_and_in_place(translator, params):
  line = 'the cat runs'
  invisible = ['\u200b', '\ufeff', '\xad', ' \u200d\u2060', '\ufe0f', '\0']
  answers = translator(params, ['', line, '   ', '\t', line, *invisible, f'\u200b{line}'])
  assert [answer.text for answer in answers[:-1]] == [
      '', answers[1].text, '', '', answers[1].text, *[''] * len(invisible)]
  assert answers[1].text and answers[-1].text


def test_one_string_is_not_a_list_of_its_letters(model, vocabulary, params):
  one = 'the cat runs'
  translator = Translator(model, vocabulary, DECODE, MAX_LENGTH)
  for call in (lambda: translator(params, one),
               lambda: Prefixes(one),
               lambda: score_pairs([model], [params], vocabulary, (one, one), (29, 29), 5)):
    with pytest.raises(UserError, match=r"several lines .* got one string, 'the cat runs'; put"):
      call()


@pytest.mark.long(but=('beam',))
def test_long_sources_are_cut_and_say_so(translator, params, vocabulary):
  long = ' '.join(WORDS * 3)
  assert len(vocabulary.encode(long)) >= MAX_LENGTH
  cut, whole = translator(params, [long, 'a cat'])
  assert (cut.cut, whole.cut) == (True, False)
  kept = vocabulary.decode(vocabulary.encode(long)[:MAX_LENGTH - 1])
  assert translator(params, [kept])[0] == cut._replace(cut=False)
  one_more = vocabulary.decode(vocabulary.encode(long)[:MAX_LENGTH])
  assert len(vocabulary.encode(one_more)) == MAX_LENGTH  # And the end token.
  assert translator(params, [one_more])[0] == cut


def forced_log_probs(model, params, source, target):
  """log p of every next token, from one forward pass without a cache: [T + 1, N]."""
  inputs = np.array([[BOS_ID, *target]], np.int32)
  ones, places = np.ones_like(inputs), np.arange(inputs.shape[1], dtype=np.int32)[None]
  real = source[None, source > 0]
  x, output = model.apply({'params': params}, real, np.ones_like(real),
                          np.arange(real.shape[1], dtype=np.int32)[None], inputs, ones, places)
  return np.asarray(jax.nn.log_softmax(jnp.einsum('BTD,ND->BTN', x, output)))[0]


@pytest.mark.long(but=('3-False',))
@pytest.mark.parametrize(('beam_size', 'sample'), [(1, False), (3, False), (3, True)])
def test_search_with_caches_finds_what_whole_forward_passes_say(model, params, vocabulary,
                                                                beam_size, sample):
  config = dataclasses.replace(DECODE, beam_size=beam_size, alpha=0.9, sample=sample,
                               temperature=0.7, top_p=0.95)
  source = np.zeros((2, 31), np.int32)
  limits = np.zeros(2, np.int32)
  for row, line in enumerate(['the cat', 'a small green tree runs']):
    ids = [*vocabulary.encode(line), EOS_ID]
    source[row, :len(ids)], limits[row] = ids, len(ids) + (2, 7)[row]
  keys = jax.random.key_data(jax.random.split(jax.random.key(0, impl='threefry2x32'), 2))
  found = jax.device_get(whole_search(model, config)(params, source, limits, keys))
  for row in range(2):
    for beam in range(beam_size):
      length = found.lengths[row, beam]
      target = found.tokens[row, beam, :length]
      assert 0 < length <= limits[row]
      log_probs = forced_log_probs(model, params, source[row], target)
      chosen = log_probs[np.arange(length), target]
      np.testing.assert_allclose(found.log_probs[row, beam], chosen.sum(), rtol=1e-4)
      np.testing.assert_allclose(found.scores[row, beam],
                                 chosen.sum() / ((5 + length) / 6) ** 0.9, rtol=1e-4)
      if beam_size == 1:
        np.testing.assert_array_equal(target, log_probs[:length].argmax(axis=-1))


def test_the_type_of_a_search_takes_the_place_of_the_trained_one(model, vocabulary, params):
  def answers(model_dtype, dtype):
    trained = model.clone(config=dataclasses.replace(model.config, dtype=model_dtype))
    config = dataclasses.replace(DECODE, beam_size=1, dtype=dtype)
    return Translator(trained, vocabulary, config, MAX_LENGTH)(params, sentences(3))

  short = answers('bfloat16', 'trained')
  assert answers('float32', 'bfloat16') == short != answers('float32', 'trained')


def test_beams_and_lists_out_of_range_are_refused(model, vocabulary):
  most = (2**31 - 1) // vocabulary.size
  Translator(model, vocabulary, dataclasses.replace(DECODE, beam_size=most), MAX_LENGTH)
  with pytest.raises(UserError, match=f'decode.beam_size must be at most {most} with a .* of '
                                      f'290 pieces; got {most + 1}'):
    Translator(model, vocabulary, dataclasses.replace(DECODE, beam_size=most + 1), MAX_LENGTH)
  for nbest in (0, 4):
    with pytest.raises(UserError, match=f'at most decode.beam_size=3 translations; got {nbest}'):
      Translator(model, vocabulary, DECODE, MAX_LENGTH, nbest=nbest)


@pytest.mark.long
def test_parameters_that_devices_hold_in_parts_are_gathered_and_activations_stay(vocabulary):
  model = Transformer(ModelConfig(num_layers=1, model_dim=16, ff_dim=24, num_heads=4),
                      vocabulary.size)
  params = jax.tree.map(lambda leaf: 2.0 * leaf, jax.jit(lambda: init_params(model, 5))())
  config = dataclasses.replace(DECODE, batch_size=4)
  mesh = make_mesh(MeshConfig(data=1, fsdp=4), 4, jax.devices()[:4])
  translate = Translator(model, vocabulary, config, MAX_LENGTH, rows=sentence_sharding(mesh, 4))
  split = jax.device_put(params, state_shardings(mesh, params))
  assert any(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(split))
  lines = ['a cat', ' '.join(WORDS * 3), *sentences(5)]
  length, program = translate.compile_longest(split, lines)
  assert length == MAX_LENGTH
  # Nothing is added up over devices but whether all sentences are done.
  assert {size for kind, size in collectives_of(program) if kind == 'all-reduce'} == {1}
  alone = Translator(model, vocabulary, config, MAX_LENGTH)(split, lines)
  assert [answer.text for answer in translate(split, lines)] == [answer.text for answer in alone]
