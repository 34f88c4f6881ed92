"""The lines between tokens on the page, in headless Chromium: which are drawn, and how."""

import numpy as np
import pytest

from tests.tools.attend import browser
from tests.tools.attend.conftest import H, page_of
from transformer.tools.attend.page import thousandths

pytestmark = [
  pytest.mark.long,
  pytest.mark.skipif(browser.CHROMIUM is None, reason='there is no chromium'),
]

# The colors of Okabe and Ito.
COLORS = [
  f'rgb({item})'
  for item in (
    '0, 114, 178',
    '230, 159, 0',
    '0, 158, 115',
    '213, 94, 0',
    '204, 121, 167',
    '86, 180, 233',
  )
]
# The lines that can be seen: between which tokens, in which color, dashes and opacity.
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
        Number(strokeOpacity)];
    });
  };
"""


def lines_of(weights, heads, queries):
  """The lines of heads [H, T, S] that are at least 2%: query, key, color and opacity."""
  result = thousandths(weights)
  return sorted(
    (t, s, COLORS[h], result[h, t, s] / 1000)
    for h in heads
    for t in queries
    for s in range(result.shape[2])
    if result[h, t, s] >= 20
  )


@pytest.mark.parametrize(
  ('kind', 'layer', 'fragment', 'heads', 'queries'),
  [
    ('encoder', 2, '', range(H), range(5)),
    ('decoder', 0, 'heads=2+0', [0, 2], range(7)),
    ('cross', 1, 'heads=1&token=3', [1], [3]),
    ('cross', 0, 'heads=', [], []),
  ],
)
def test_lines_are_the_weights_of_the_heads_and_the_token_that_the_address_names(
  small, tmp_path, kind, layer, fragment, heads, queries
):
  seen = browser.look(
    page_of(small),
    tmp_path,
    f'kind={kind}&layer={layer}&{fragment}',
    probe=LINES + 'return lines();',
  )
  weights = getattr(small, kind)[layer]
  lines = sorted(
    (query, key, color, round(opacity, 3))
    for query, key, color, dashes, opacity in seen.probed
    if dashes == 'none'
  )
  assert lines == lines_of(weights, heads, queries) and len(lines) == len(seen.probed)
  boxes = [item for item in seen.document.by_id('heads').all() if item.tag == 'input']
  assert len(boxes) == H and f'layer {layer}' in seen.document.by_id('lines-title').text
  if len(queries) == 1:
    row = thousandths(weights)[heads[0], queries[0]]
    key = int(np.argmax(row))
    assert seen.document.by_id('lines-readout').text == (
      f'{small.target[3]} → head 1: {small.source[key]} {browser.percents(row)[key]}'
    )
