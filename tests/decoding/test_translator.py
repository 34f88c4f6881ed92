"""Translation: lines stay aligned, and a sentence does not depend on its batch."""

import dataclasses
import random
import types
from importlib import import_module

import jax
import numpy as np
import pytest

from tests.hlo_collectives import collectives_of
from tests.toy_translation import (
  DECODE,
  MAX_LENGTH,
  ROUNDING,
  WORDS,
  make_model,
  make_params,
  make_translator,
  make_vocabulary,
  sentences,
)
from transformer.decoding import translator as translator_module
from transformer.decoding.constraint import UNCONSTRAINED
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.training.config import MeshConfig
from transformer.training.mesh import make_mesh, state_shardings

VOCABULARY = make_vocabulary()
MODEL = make_model(VOCABULARY)


@pytest.fixture(scope='module')
def params():
  return make_params(MODEL)


def on_mesh(model=MODEL, config=DECODE):
  """Returns a translator whose batches four devices share; they are not refilled."""
  config = dataclasses.replace(config, batch_size=8)
  mesh = make_mesh(MeshConfig(), 8)
  assert mesh.size == 4
  return make_translator(model, VOCABULARY, config, mesh=mesh)


@pytest.fixture(scope='module', params=['cpu', 'mesh'])
def translator(request):
  return on_mesh() if request.param == 'mesh' else make_translator(MODEL, VOCABULARY)


@pytest.mark.long(but=('cpu',))
def test_translations_keep_the_order_of_the_lines_in_any_batch(translator, params):
  lines = sentences(7)
  together = translator(params, [*lines, *sentences(9, seed=3)])[:7]
  assert len({answer.text for answer in together}) > 4
  order = random.Random(2).sample(range(7), 7)
  assert translator(params, [lines[i] for i in order]) == [together[i] for i in order]
  assert (
    translator(params, lines[3:4]) == together[3:4] and translator(params, []) == []
  )


@pytest.mark.long(but=('free-3', 'samples-1'))
@pytest.mark.parametrize('beams', [1, 3])
@pytest.mark.parametrize('kind', ['free', 'constrained', 'samples', 'ensemble'])
def test_continuous_batching_and_a_mesh_find_the_same(
  monkeypatch, params, doc_plugins, kind, beams
):
  """Any number of threads agrees bit for bit, and a mesh up to rounding.

  Batches of a mesh have other sizes, so that sums are in another order. Texts are the same, since
  no choice of this model is a near tie; of another model, a near tie could go either way.
  """
  lines = [*sentences(23), '', *sentences(4, seed=2)]
  config = dataclasses.replace(
    DECODE, beam_size=beams, nbest=beams, sample=kind == 'samples'
  )
  models = MODEL
  if kind == 'ensemble':
    models, params = (
      [MODEL, MODEL],
      (params, jax.tree.map(lambda leaf: 0.9 * leaf[::-1], params)),
    )
  constraint = UNCONSTRAINED
  if kind == 'constrained':
    constraint = import_module('my_constraints').MostTokens([9, 0] * 14)
  answers = []
  for threads in (1, 3):
    monkeypatch.setattr(
      translator_module, 'usable_cores', lambda threads=threads: threads
    )
    answers.append(
      make_translator(models, VOCABULARY, config)(params, lines, 5, constraint, seed=3)
    )
  assert answers[0] == answers[1]
  mesh = on_mesh(models, config)(params, lines, 5, constraint, seed=3)
  for answer, wanted in zip(answers[0], mesh, strict=True):
    assert answer.text == wanted.text and len(answer.nbest) == len(wanted.nbest)
    for (text, score), (wanted_text, wanted_score) in zip(
      answer.nbest, wanted.nbest, strict=True
    ):
      assert text == wanted_text and score == pytest.approx(wanted_score, abs=ROUNDING)
  assert len({answer.text for answer in mesh}) > 5


def test_a_custom_constraint_holds_in_any_batch(params, doc_plugins):
  counting = types.SimpleNamespace(
    source=VOCABULARY.source,
    target=types.SimpleNamespace(
      size=VOCABULARY.size, decode=lambda tokens: str(np.count_nonzero(tokens))
    ),
  )
  translate = make_translator(MODEL, counting)
  lines, most = [line[:19] for line in sentences(7)], [0, 12, 3, 0, 99, 12, 1]
  constraint = import_module('my_constraints').MostTokens
  free = translate(params, lines)
  answers = translate(params, lines, constraint=constraint(most))
  for before, answer, number in zip(free, answers, most, strict=True):
    # A free sentence goes through the same program as before, bit for bit.
    assert answer == before if number == 0 else int(answer.text) <= number
  assert (
    sum(
      answer.text != before.text for before, answer in zip(free, answers, strict=True)
    )
    > 1
  )
  assert translate(params, lines[1:2], constraint=constraint(most[1:2])) == answers[1:2]


@pytest.mark.long
def test_samples_depend_only_on_sentence_number_and_seed(params):
  lines = [*sentences(6), sentences(1)[0]]
  config = dataclasses.replace(DECODE, beam_size=2, sample=True)
  translate, same = (make_translator(MODEL, VOCABULARY, config) for _ in range(2))
  answers, others = translate(params, lines), translate(params, lines, seed=1)
  assert same(params, lines) == answers
  assert all(a.text != b.text for a, b in zip(answers, others, strict=True))
  # Its first and its last line are the same.
  assert answers[0].text != answers[-1].text
  # Other sentences in the batch, and another row; then none.
  assert translate(params, [*lines, *sentences(9, seed=3)])[:7] == answers
  assert translate(params, [*[''] * 3, lines[3], *[''] * 3])[3] == answers[3]
  assert translate(params, lines[3:4], offset=3) == answers[3:4]


def test_a_sample_is_of_the_number_of_its_sentence(params):
  config = dataclasses.replace(DECODE, beam_size=1, sample=True)
  translate = make_translator(MODEL, VOCABULARY, config)
  together = translate(params, ['a cat'] * 3)
  assert len({answer.text for answer in together}) == 3
  assert translate(params, ['a cat'], offset=2) == together[2:]


@pytest.mark.long(but=('cpu',))
def test_lines_without_words_stay_empty_and_in_place(translator, params):
  line = 'the cat runs'
  invisible = ['\u200b', '\ufeff', '\xad', ' \u200d\u2060', '\ufe0f', '\0']
  answers = translator(
    params, ['', line, '   ', '\t', line, *invisible, f'\u200b{line}']
  )
  assert [answer.text for answer in answers[:-1]] == [
    '',
    answers[1].text,
    '',
    '',
    answers[1].text,
    *[''] * len(invisible),
  ]
  assert answers[1].text and answers[-1].text


@pytest.mark.long(but=('cpu',))
def test_long_sources_are_truncated_and_say_so(translator, params):
  long = ' '.join(WORDS * 3)
  assert len(VOCABULARY.encode(long)) >= MAX_LENGTH
  truncated, whole = translator(params, [long, 'a cat'])
  assert (truncated.truncated, whole.truncated) == (True, False)
  kept = VOCABULARY.decode(VOCABULARY.encode(long)[: MAX_LENGTH - 1])
  assert translator(params, [kept])[0] == truncated._replace(truncated=False)
  one_more = VOCABULARY.decode(VOCABULARY.encode(long)[:MAX_LENGTH])
  assert len(VOCABULARY.encode(one_more)) == MAX_LENGTH  # And EOS.
  assert translator(params, [one_more])[0] == truncated


@pytest.mark.long
def test_the_type_of_a_search_takes_the_place_of_the_trained_one(params):
  def answers(model_dtype, dtype):
    trained = MODEL.clone(config=dataclasses.replace(MODEL.config, dtype=model_dtype))
    config = dataclasses.replace(DECODE, beam_size=1, dtype=dtype)
    return make_translator(trained, VOCABULARY, config)(params, sentences(3))

  short = answers('bfloat16', 'trained')
  assert answers('float32', 'bfloat16') == short != answers('float32', 'trained')


def test_one_string_instead_of_a_list_is_rejected(params):
  with pytest.raises(UserError, match=r"expected a list of lines.*; got 'the cat'"):
    make_translator(MODEL, VOCABULARY)(params, 'the cat')


@pytest.mark.long
def test_parameters_that_devices_hold_in_parts_are_gathered_and_activations_stay():
  model = Transformer(
    ModelConfig(num_layers=1, model_dim=16, ff_dim=24, num_heads=4), VOCABULARY.size
  )
  params = jax.tree.map(
    lambda leaf: 2.0 * leaf, jax.jit(lambda: init_params(model, 5))()
  )
  config = dataclasses.replace(DECODE, batch_size=4)
  mesh = make_mesh(MeshConfig(data=1, fsdp=4), 4, jax.devices()[:4])
  translate = make_translator(model, VOCABULARY, config, mesh=mesh)
  translator = Translator((model,), VOCABULARY, MAX_LENGTH, mesh)
  split = jax.device_put(params, state_shardings(mesh, params, model))
  assert any(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(split))
  lines = ['a cat', ' '.join(WORDS * 3), *sentences(5)]
  length, program = translator.compile_longest([split], lines, config)
  assert length == MAX_LENGTH
  # Nothing is added up over devices but whether all sentences are done.
  assert {size for kind, size in collectives_of(program) if kind == 'all-reduce'} == {1}
  alone = make_translator(model, VOCABULARY, config)(split, lines)
  assert [answer.text for answer in translate(split, lines)] == [
    answer.text for answer in alone
  ]
