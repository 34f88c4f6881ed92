"""The lines between tokens on the page, in headless Chromium: which are drawn, and how."""

import re

import numpy as np
import pytest

from tests.tools.attend import browser
from tests.tools.attend.conftest import H, made_up, page_of, texts_of
from transformer.tools.attend.page import thousandths

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(browser.CHROMIUM is None, reason='there is no chromium')]

# The colours of Okabe and Ito.
COLOURS = [f'rgb({item})' for item in (
    '0, 114, 178', '230, 159, 0', '0, 158, 115', '213, 94, 0', '204, 121, 167', '86, 180, 233')]
# The lines that can be seen: between which tokens, in which colour, dashes and opacity.
LINES = """
  const by = (id) => document.getElementById(id);
  const lines = () => {
    const box = by('lines').getBoundingClientRect();
    const nearest = (id, y) => {
      const far = [...by(id).children].map((each) => each.getBoundingClientRect()).map(
          ({top, height}) => Math.abs(top + height / 2 - box.top - y));
      return far.indexOf(Math.min(...far));
    };
    return [...document.querySelectorAll('#lines line')].filter(
        (each) => getComputedStyle(each.parentNode).display !== 'none').map((each) => {
      const [x1, y1, x2, y2] = ['x1', 'y1', 'x2', 'y2'].map((name) => each[name].baseVal.value);
      const {stroke, strokeOpacity, strokeDasharray} = getComputedStyle(each);
      if (x1 || x2 !== box.width || box.width < 100) throw Error('it does not reach the tokens');
      return [nearest('lines-queries', y1), nearest('lines-keys', y2), stroke, strokeDasharray,
        Number(strokeOpacity), box.left + x2 / 2, box.top + (y1 + y2) / 2];
    });
  };
"""


def lines_of(weights, heads, queries):
  """The lines of heads [H, T, S] that are at least 2 %: query, key, colour and opacity."""
  result = thousandths(weights)
  return sorted((t, s, COLOURS[h], result[h, t, s] / 1000) for h in heads for t in queries
                for s in range(result.shape[2]) if result[h, t, s] >= 20)


def without_place(lines):
  return sorted((query, key, colour, round(opacity, 3))
                for query, key, colour, _, opacity, *_ in lines)


@pytest.mark.parametrize(('kind', 'layer', 'fragment', 'heads', 'queries'), [
    ('encoder', 2, '', range(H), range(5)), ('decoder', 0, 'heads=2+0', [0, 2], range(7)),
    ('cross', 1, 'heads=1&token=3', [1], [3]), ('cross', 0, 'heads=', [], [])])
def test_lines_are_the_weights_of_the_heads_and_the_token_that_the_address_names(
    small, tmp_path, kind, layer, fragment, heads, queries):
  seen = browser.look(page_of(small), tmp_path,
                      f'kind={kind}&layer={layer}&{fragment}', probe=LINES + 'return lines();')
  weights = getattr(small.weights, kind)[layer]
  assert without_place(seen.probed) == lines_of(weights, heads, queries)
  assert all(dash == 'none' for _, _, _, dash, *_ in seen.probed)
  boxes = [item for item in seen.document.by_id('heads').all() if item.tag == 'input']
  assert len(boxes) == H and f'layer {layer}' in seen.document.by_id('lines-title').text
  if len(queries) == 1:
    row = thousandths(weights)[heads[0], queries[0]]
    key = int(np.argmax(row))
    assert seen.document.by_id('lines-readout').text == (
        f'{small.target[3]} → head 1: {texts_of(small.source)[key]} {browser.percents(row)[key]}')


def test_lines_of_a_long_sentence_are_within_a_narrow_dark_window(tmp_path):
  long = made_up([f'▁source{i}' for i in range(59)], [f'▁übersetzt{i}' for i in range(60)], seed=1)
  seen = browser.look(
      page_of(long), tmp_path, 'kind=encoder&layer=1&heads=0+2&token=7', width=500, height=5000,
      dark=True, probe=LINES + """
    const tokens = [...document.querySelectorAll('#figure .chips > *')];
    return [lines(), document.documentElement.scrollWidth,
      tokens.map((each) => each.getBoundingClientRect().height)];""")
  lines, wide, heights = seen.probed
  assert wide <= 500 and len(heights) == 120 and set(heights) == {12}
  assert without_place(lines) == lines_of(long.weights.encoder[1], [0, 2], [7])
  paper = seen.pixels[-1, 0].astype(float)
  for colour in (COLOURS[0], COLOURS[2]):
    *_, opacity, x, y = max((item for item in lines if item[2] == colour), key=lambda item: item[4])
    ink = np.array([int(item) for item in re.findall(r'\d+', colour)])
    result = seen.pixels[int(y), int(x)]
    np.testing.assert_allclose(result, paper + opacity * (ink - paper), atol=25)
