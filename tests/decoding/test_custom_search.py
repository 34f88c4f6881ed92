"""A search of a user's file, as docs/changing-the-model.md shows it."""

import dataclasses

import pytest

from tests.toy_translation import (
  DECODE,
  make_model,
  make_params,
  make_translator,
  make_vocabulary,
  sentences,
)
from transformer.errors import UserError

VOCABULARY = make_vocabulary()
MODEL = make_model(VOCABULARY)


def translate(search, lines, nbest=3):
  config = dataclasses.replace(DECODE, search=search, nbest=nbest)
  translator = make_translator(MODEL, VOCABULARY, config)
  return [answer.nbest for answer in translator(make_params(MODEL), lines)]


def test_without_a_penalty_the_example_is_beam_search_and_with_one_its_beams_differ(
  doc_plugins,
):
  lines = sentences(4)
  plain = translate('default', lines)
  assert translate(('my_searches:diverse', 0.0), lines) == plain
  diverse = translate(('my_searches:diverse', {'penalty': 2.0}), lines)
  assert diverse != plain

  def beginnings(lists):
    return sum(
      len({text.split()[0] for text, _ in nbest if text.split()}) for nbest in lists
    )

  assert beginnings(diverse) > beginnings(plain)
  for nbest in diverse:
    scores = [score for _, score in nbest]
    assert scores == sorted(scores, reverse=True)


def nothing(*_):
  return None


@pytest.mark.parametrize(
  ('search', 'fact'),
  [
    (f'{__name__}:nothing', 'must return a Search of transformer.ops.search; got None'),
    ('no_module:f', 'the search no_module:f cannot be imported'),
    (('my_searches:diverse', 1.0, 2.0), '1.0, 2.0) cannot be built: TypeError'),
  ],
)
def test_user_error_is_a_one_line_message_that_names_the_search(
  doc_plugins, search, fact
):
  with pytest.raises(UserError) as caught:
    translate(search, ['the cat'])
  assert fact in str(caught.value) and '\n' not in str(caught.value), caught.value


def test_a_search_must_be_named_as_a_module_and_a_function():
  with pytest.raises(UserError, match='search must be one of default, or MODULE:NAME'):
    dataclasses.replace(DECODE, search='beam')
