"""The page's data are the model's weights, and text is never markup."""

import base64
import hashlib
import html.parser
import json
import random
import re
import types
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.data.batch import BOS_ID, EOS_ID
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.model.attention_weights import attention_weights
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.tools.attend.page import attention_page, visible
from transformer.trained_run import TrainedRun

L, H, MAX_SOURCE, MAX_TARGET = 2, 3, 29, 37
WORDS = ['the', 'cat', 'dog', 'sees', 'eats', 'small', 'green', 'under']
HOSTILE = [
  '</script><script>alert(1)</script>',
  '<!--<script>',
  '<img src=x onerror=alert(1)>',
  '{{script}}{{data}}',
  '"><b>',
  ']]>',
  '&lt;',
  '\u202eleft',
  '\x00',
  'a\u2028b',
  '\\u003c',
]


class Tags(html.parser.HTMLParser):
  """Every tag with its attributes, and the text of each script and style."""

  def __init__(self, page):
    super().__init__()
    self.tags, self.inside = [], []
    self.feed(page.decode('utf-8'))

  def handle_starttag(self, tag, attributes):
    self.tags.append((tag, attributes))

  def handle_data(self, text):
    if self.tags and self.tags[-1][0] in ('script', 'style') and text.strip():
      self.inside.append(text)


def data_of(page):
  return json.loads(Tags(page).inside[1])


def weights_of(sentence):
  numbers = np.frombuffer(zlib.decompress(base64.b64decode(sentence['weights'])), '<u2')
  s, t = len(sentence['source']), len(sentence['target'])
  shapes = [(L, H, s, s), (L, H, t, t), (L, H, t, s)]
  parts = np.split(numbers, np.cumsum([np.prod(shape) for shape in shapes])[:-1])
  return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


@pytest.fixture(scope='module')
def run():
  rng = random.Random(0)
  lines = [' '.join(rng.choices(WORDS, k=6)) for _ in range(200)]
  vocabulary = Vocabulary.train([*lines, *HOSTILE * 9], 370)
  model = Transformer(
    ModelConfig(
      num_layers=L, model_dim=12, ff_dim=22, num_heads=H, norm_position='pre'
    ),
    vocabulary.size,
  )
  # Parameters wider than trained ones, so that the weights differ.
  params = jax.tree.map(
    lambda leaf: 3.0 * leaf, jax.jit(lambda: init_params(model, 5))()
  )
  config = types.SimpleNamespace(
    data=types.SimpleNamespace(max_length=MAX_SOURCE),
    decode=types.SimpleNamespace(max_extra_length=MAX_TARGET - MAX_SOURCE),
  )
  return TrainedRun(Path('nowhere'), config, vocabulary, model, params, [1])


@pytest.fixture(scope='module')
def page_of(run):
  """Returns the page of pairs of a source and its translation."""
  return lambda *pairs, about='about': attention_page(
    [run.attention(*pair) for pair in pairs], about
  )


@pytest.mark.long
def test_the_page_has_the_models_weights(page_of, run):
  pairs = [('the small cat sees', 'dog eats under the green'), ('cat', 'the ' * 20)]
  sentences = data_of(page_of(*pairs))['sentences']
  for (source, target), sentence in zip(pairs, sentences, strict=True):
    source, target = (
      [*run.vocabulary.encode(text), EOS_ID] for text in (source, target)
    )
    batch = []
    for ids in (source, [BOS_ID, *target[:-1]]):
      ids = jnp.asarray([ids], jnp.int32)
      batch += [ids, jnp.ones_like(ids), jnp.arange(ids.size, dtype=jnp.int32)[None]]
    wanted = jax.jit(lambda *batch: attention_weights(run.model, run.params, *batch))(
      *batch
    )
    for result, exact in zip(weights_of(sentence), wanted, strict=True):
      np.testing.assert_array_less(np.abs(result / 1000 - exact[:, 0]), 0.0005 + 1e-5)
    assert sentence['source'] == [run.vocabulary.piece(token) for token in source]
    assert sentence['target'] == [run.vocabulary.piece(token) for token in target]
    assert not np.any(np.triu(weights_of(sentence)[1], 1))  # None has looked ahead.
  assert (
    len({item.tobytes() for item in weights_of(sentences[0])[2].reshape(L * H, -1)})
    == L * H
  )


def test_words_are_the_pieces_between_spaces(page_of):
  (data,) = data_of(page_of(('the zebra  sees', 'd"\'größe x>]"')))['sentences']
  assert [word for word, *_ in data['sourceWords']] == [
    'the',
    'zebra',
    '␣',
    'sees',
    '</s>',
  ]
  assert [word for word, *_ in data['targetWords']] == [
    'd"\'größe',
    'x>',
    ']',
    '"',
    '</s>',
  ]
  assert len(data['source']) > len(data['sourceWords'])
  for side in ('source', 'target'):
    words = data[f'{side}Words']
    assert [place for _, start, stop in words for place in range(start, stop)] == list(
      range(len(data[side]))
    )
    assert words[-1] == ['</s>', len(data[side]) - 1, len(data[side])]


def test_hostile_text_is_in_the_page_as_text_and_as_nothing_else(page_of):
  harmless = Tags(page_of(('cat', 'dog')))
  pairs = [(text, text) for text in HOSTILE] + [(' '.join(HOSTILE[:3]), 'cat')]
  about = ' '.join(HOSTILE)
  tags = Tags(page_of(*pairs, about=about))
  assert tags.tags == harmless.tags
  assert [item for i, item in enumerate(tags.inside) if i != 1] == [
    item for i, item in enumerate(harmless.inside) if i != 1
  ]
  data = json.loads(tags.inside[1])
  assert data['about'] == visible(about)
  for (text, _), sentence in zip(pairs, data['sentences'], strict=True):
    words = [word for word, *_ in sentence['sourceWords'][:-1]]
    assert ''.join(words) == visible(text).replace(' ', '')


def test_only_the_pages_own_script_may_run_and_nothing_is_fetched(page_of):
  tags = Tags(page_of(('cat', 'dog')))
  (policy,) = (
    dict(attributes)['content']
    for tag, attributes in tags.tags
    if dict(attributes).get('http-equiv') == 'Content-Security-Policy'
  )
  style, _, script = tags.inside
  allowed = {
    directive.split()[0]: directive.split()[1:] for directive in policy.split(';')
  }
  for directive, content in (('style-src', style), ('script-src', script)):
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    assert allowed[directive] == [f"'sha256-{digest}'"]
  assert allowed['default-src'] == ["'none'"]
  for tag, attributes in tags.tags:
    assert not {'src', 'href', 'style'} & {name for name, _ in attributes}, tag
  fetched_or_markup = (
    r'https?:|url\(|@import|(inner|outer|Adjacent)HTML|document\.write'
  )
  assert not re.search(fetched_or_markup, style + script)


def test_invisible_characters_are_escaped():
  for text, shown in (
    ('a b', 'a b'),
    ('a\u200bb', 'a⟨U+200B⟩b'),
    ('\u202e', '⟨U+202E⟩'),
    ('\x00\n', '⟨U+0000⟩⟨U+000A⟩'),
    ('\xa0', '␣'),
    ('é字🙂', 'é字🙂'),
  ):
    assert visible(text) == shown
