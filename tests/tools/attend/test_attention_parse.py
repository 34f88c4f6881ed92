"""The page of a parsing run draws the parse of the chosen sentence, and no text becomes markup."""

import re
import xml.etree.ElementTree as xml

import pytest

from tests.data.random_trees import deep_tree
from tests.tools.attend import browser
from tests.tools.attend.conftest import made_up
from transformer.data.linearisation import delinearise, linearise
from transformer.data.treebank import parse_tree
from transformer.tools.attend.page import attention_page, visible

SPACE = '{http://www.w3.org/2000/svg}'
WIDE = parse_tree('(S ' + ''.join(
    f'(NP (DT the) (NN word{number}) (PP (IN of) (NP (NN WWWWW)))) ' for number in range(15)) + ')')
HOSTILE = ['</svg><script>alert(1)</script>', '{{script}}', '"><b>', '\u202eleft', '\x00', '&lt;']


def parses_of(*trees):
  return [delinearise(linearise(tree), tree.words) for tree in trees]


def test_each_parse_is_drawn_with_its_mends(small):
  parses = [*parses_of(WIDE), delinearise('(NP XX )VP XX )NP', ['a', 'b'])]
  page = attention_page([small, small], '', parses=parses).decode('utf-8')
  drawings = re.findall(r'<svg xmlns.*?</svg>', page)
  for parse, svg in zip(parses, drawings, strict=True):
    assert [each.text for each in xml.fromstring(svg).iter(f'{SPACE}text')] == [
        *(bracket.label for bracket in parse.tree.brackets), *parse.tree.words]
  notes = re.findall(r'no tree until it was mended: (.*?)\.<', page)
  assert notes == ['mislabelled 1, several roots 1, unopened 1']
  assert b'<svg xmlns' not in attention_page([small], '')


def test_hostile_words_and_labels_stay_text(small):
  parse = delinearise(f'({HOSTILE[2]} {"XX " * len(HOSTILE)})x', HOSTILE)
  page = attention_page([small], '', parses=[parse]).decode('utf-8')
  svg, = re.findall(r'<svg xmlns.*?</svg>', page)
  root = xml.fromstring(svg)
  assert [each.text for each in root.iter(f'{SPACE}text')] == [
      HOSTILE[2], *map(visible, HOSTILE)]
  assert {each.tag.removeprefix(SPACE) for each in root.iter()} == {'svg', 'g', 'path', 'text'}


def test_a_deep_parse_is_drawn(small):
  page = attention_page([small], '', parses=parses_of(deep_tree(500))).decode('utf-8')
  assert page.count('<text ') == 1000


MEASURE = '''
  const boxes = [...document.querySelectorAll('#trees > :not([hidden]) text')].map((each) => {
    const {left, right, top, bottom} = each.getBoundingClientRect();
    return [left, right, top, bottom];
  });
  return {
    hidden: [...document.querySelectorAll('#trees > *')].map((each) => each.hidden),
    shown: !document.getElementById('parse').hidden,
    width: document.documentElement.scrollWidth,
    boxes,
  };
'''


@pytest.mark.long
@pytest.mark.skipif(browser.CHROMIUM is None, reason='there is no chromium')
@pytest.mark.parametrize('chosen', [0, 1])
def test_a_browser_shows_the_chosen_parse_without_overlaps(small, tmp_path, chosen):
  trees = WIDE, parse_tree('(NP (DT a) (NN dog))')
  page = attention_page([small, made_up(['▁a', '</s>'], ['▁(', 'NP', '</s>'])], '',
                        parses=parses_of(*trees))
  probed = browser.look(page, tmp_path, f'sentence={chosen}', probe=MEASURE).probed
  assert probed['shown'] and probed['hidden'] == [chosen == 1, chosen == 0]
  assert probed['width'] <= 1280  # The tree scrolls, and not the page.
  boxes = probed['boxes']
  assert len(boxes) == len(trees[chosen].words) + len(trees[chosen].brackets)
  for number, (left, right, top, bottom) in enumerate(boxes):
    assert all(right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
               for other in boxes[:number])


@pytest.mark.long
@pytest.mark.skipif(browser.CHROMIUM is None, reason='there is no chromium')
def test_a_page_of_translations_has_no_section_of_parses(small, tmp_path):
  assert not browser.look(attention_page([small], ''), tmp_path, probe=MEASURE).probed['shown']
