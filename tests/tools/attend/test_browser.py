"""The page in headless Chromium marks, prints and paints the model's values."""

import re

import numpy as np
import pytest

from tests.tools.attend import browser
from tests.tools.attend.conftest import made_up, page_of
from transformer.tools.attend.page import thousandths

pytestmark = [
  pytest.mark.long,
  pytest.mark.skipif(browser.CHROMIUM is None, reason='there is no chromium'),
]

# The words of the small map, and their pieces.
SOURCE_WORDS = {
  'the': slice(0, 1),
  'zebra': slice(1, 3),
  'eats': slice(3, 4),
  '</s>': slice(4, 5),
}
TARGET_WORDS = {
  'Zebras': slice(0, 2),
  'essen': slice(2, 3),
  'hier': slice(3, 4),
  '</b>': slice(4, 5),
  'viel': slice(5, 6),
  '</s>': slice(6, 7),
}


def chips(document, name):
  """The (text, weight) of every chip, and which are marked."""
  shown = document.by_id(name).elements
  return (
    [(chip.children[0], chip.elements[0].text) for chip in shown],
    [
      i for i, chip in enumerate(shown) if chip.attributes.get('aria-pressed') == 'true'
    ],
  )


@pytest.mark.parametrize(
  ('kind', 'layer', 'head', 'query'),
  [
    ('encoder', 1, 0, 2),
    ('encoder', 2, 1, 3),
    ('decoder', 0, 2, 5),
    ('cross', 1, 1, 4),
  ],
)
def test_an_address_chooses_and_the_weights_printed_are_the_models(
  small, tmp_path, kind, layer, head, query
):
  other = made_up(['▁a'], ['▁b', '▁c'])
  document = browser.look(
    page_of(other, small, about='a run'),
    tmp_path,
    f'sentence=1&kind={kind}&layer={layer}&head={head}&query={query}',
  ).document
  row = thousandths(getattr(small, kind))[layer, head, query]
  source, target = small.source, small.target
  queries = source if kind == 'encoder' else target
  keys = ['<s>', *target[:-1]] if kind == 'decoder' else source
  result, marked = chips(document, 'queries')
  assert ([text for text, _ in result], marked) == (queries, [query])
  assert chips(document, 'keys')[0] == list(
    zip(keys, browser.percents(row), strict=True)
  )
  strongest = int(np.argmax(row))
  assert document.by_id('readout').text.startswith(
    f'{queries[query]} → {keys[strongest]} {browser.percents(row)[strongest]}'
  )
  shaded = [
    dict(re.findall(r'([\w-]+): ([^;]+)', chip.attributes['style']))['background']
    for chip in document.by_id('keys').elements
  ]
  darkness = [-sum(map(int, re.findall(r'\d+', color))) for color in shaded]
  assert int(np.argmax(darkness)) == strongest
  assert 'a run' in document.by_id('about').text
  titles = [document.by_id(name).text for name in ('tokens-title', 'map-title')]
  assert all(f'layer {layer}, head {head}' in title for title in titles)


@pytest.mark.parametrize(
  ('word', 'side'), [('target0', 'source'), ('source1', 'target')]
)
def test_a_word_is_aligned_by_the_mean_of_the_heads_of_its_pieces(
  small, tmp_path, word, side
):
  document = browser.look(page_of(small), tmp_path, f'layer=0&word={word}').document
  cross = thousandths(small.cross)[0].mean(0)
  wanted = np.array(
    [
      [cross[t, s].sum(-1).mean() for s in SOURCE_WORDS.values()]
      for t in TARGET_WORDS.values()
    ]
  )
  row, words = (
    (wanted[0], SOURCE_WORDS) if side == 'source' else (wanted[:, 1], TARGET_WORDS)
  )
  result, _ = chips(document, f'{side}-words')
  assert [text for text, _ in result] == list(words)
  np.testing.assert_allclose(
    [float(weight.removesuffix('\xa0%')) for _, weight in result], row / 10, atol=0.0501
  )
  other, number = ('target', 0) if side == 'source' else ('source', 1)
  assert chips(document, f'{other}-words')[1] == [number]


# Actions with mouse and keyboard, and the marks after them.
USE = """
  const by = (id) => document.getElementById(id);
  const marked = () => [...document.querySelectorAll('[aria-pressed=true], [aria-current=true]')]
      .map((each) => each.textContent || each.ariaLabel).join(' ');
  const steps = [];
  const step = (done) => steps.push([marked(), by('readout').textContent, location.hash]);
  by('queries').children[3].dispatchEvent(new PointerEvent('pointerenter'));
  step();
  by('queries').children[3].focus();
  document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
  step();
  by('target-words').children[2].dispatchEvent(new PointerEvent('pointerenter'));
  step();
  by('grid').querySelectorAll('button')[1].click();
  step();
  by('kind').value = 'encoder';
  by('kind').dispatchEvent(new Event('change'));
  step();
  const box = by('big').getBoundingClientRect();
  by('big').dispatchEvent(new PointerEvent('pointermove', {
    clientX: box.left + box.width * 3.5 / 5, clientY: box.top + box.height * 1.5 / 5}));
  step();
  return steps;
"""


def test_mouse_and_keyboard_choose_tokens_words_heads_and_cells(small, tmp_path):
  steps = browser.look(page_of(small), tmp_path, 'layer=1&head=2', probe=USE).probed
  pointed, moved, word, head, kind, cell = steps
  cross, encoder = (thousandths(item) for item in (small.cross, small.encoder))

  def strongest(row):
    return f'→ {small.source[int(np.argmax(row))]} {max(row) / 10:.1f}\xa0%'

  assert '▁hier' in pointed[0] and strongest(cross[1, 2, 3]) in pointed[1]
  assert (
    '▁</b>' in moved[0]
    and '▁hier' not in moved[0]
    and strongest(cross[1, 2, 4]) in moved[1]
  )
  assert 'hier' in word[0].split() and 'word=target2' in word[2]
  assert 'Layer 0, head 1' in head[0] and 'layer=0&head=1' in head[2]
  assert strongest(cross[0, 1, 4]) in head[1]
  assert 'kind=encoder' in kind[2] and strongest(encoder[0, 1, 4]) in kind[1]
  assert cell[1] == f'▁ze → ▁eats {encoder[0, 1, 1, 3] / 10:.1f}\xa0%'


BOXES = """
  return ['#big', '#grid canvas'].flatMap((maps) => [...document.querySelectorAll(maps)]).map(
      (map) => map.getBoundingClientRect()).map(
      ({left, top, width, height}) => [left, top, width, height]);
"""


def strongest_cell(pixels, box, shape, dark):
  """Where the middle of a cell is darkest, or on a dark page brightest."""
  left, top, width, height = box
  rows, columns = shape
  y = (top + (np.arange(rows) + 0.5) * height / rows).astype(int)
  x = (left + (np.arange(columns) + 0.5) * width / columns).astype(int)
  light = pixels[y][:, x].astype(int).sum(-1)
  return np.unravel_index(np.argmax(light if dark else -light), shape)


@pytest.mark.parametrize(
  ('kind', 'dark'), [('encoder', True), ('decoder', False), ('cross', False)]
)
def test_the_strongest_cell_of_a_map_is_painted_where_it_should_be(
  small, tmp_path, kind, dark
):
  seen = browser.look(
    page_of(small), tmp_path, f'kind={kind}&layer=1&head=2', probe=BOXES, dark=dark
  )
  weights = thousandths(getattr(small, kind))
  shape = weights.shape[2:]
  for box, shown in zip(
    seen.probed, [weights[1, 2], *weights.reshape(-1, *shape)], strict=True
  ):
    cell = strongest_cell(seen.pixels, box, shape, dark)
    assert shown[cell] > shown.max() - 15, (cell, np.argmax(shown))
  corner = seen.pixels[-1, 0].astype(int).sum()
  assert (corner < 150) == dark and (corner > 600) == (not dark)
