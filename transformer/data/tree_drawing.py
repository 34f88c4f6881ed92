"""Pictures of constituency trees: lines of text, and SVG."""

import html
import re
import unicodedata
from collections.abc import Sequence

from transformer.data.treebank import Tree, bracketed, walk

# Pixels: the size of the font, a letter's width, between words, between levels.
_FONT, _LETTER, _GAP, _ROW = 13, 8, 14, 34
# Pixels: from the line that a text stands on to its edges above and below, and on to the bar.
_ABOVE, _BELOW, _BAR = 13, 5, 8
# XML has no way to write these.
_NOT_XML = re.compile('[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]')


def draw_text(tree: Tree) -> str:
  """Draws a tree with one constituent on each line; its parts are below it, and indented.

  Words that follow each other share a line. A constituent that holds one other constituent and
  nothing else shares its line too.
  """
  children, lines = _children(tree), []
  # Each entry: its indent, the indent of its parts, and the index of a bracket or words.
  ahead = [('', '', 0)] if tree.brackets else []
  while ahead:
    before, indent, item = ahead.pop()
    if isinstance(item, str):
      lines.append(f'{before}{item}')
      continue
    labels, inside = [tree.brackets[item].label], _lines_inside(tree, children[item])
    while len(inside) == 1 and not isinstance(inside[0], str):
      labels.append(tree.brackets[inside[0]].label)
      inside = _lines_inside(tree, children[inside[0]])
    title = ' ─ '.join(labels)
    if len(inside) == 1:
      lines.append(f'{before}{title}  {inside[0]}')
      continue
    lines.append(f'{before}{title}')
    ahead += [(indent + ('├─ ' if number else '└─ '), indent + ('│  ' if number else '   '), each)
              for number, each in enumerate(reversed(inside))]
  return '\n'.join(lines)


def draw_svg(tree: Tree) -> str:
  """Draws a tree as an SVG element, in the colour of the text around it; words are at the bottom.

  The font has a fixed width, so that no label or word touches another in any browser. Edges have
  right angles: those of a constituent share a bar below its label, and cross nothing. No text of
  the tree becomes markup.
  """
  places, depths, edges = _layout(tree)
  bottom = (max(depths, default=-1) + 1) * _ROW + _ROW // 2
  ys = [depth * _ROW + _ROW // 2 for depth in depths] + [bottom] * len(tree.words)
  lines = ''.join(
      f'<path d="M{places[one]:g} {ys[one] + _BELOW}v{_BAR}H{places[two]:g}V{ys[two] - _ABOVE}"/>'
      for one, two in edges)
  texts = [bracket.label for bracket in tree.brackets] + list(tree.words)
  drawn = [f'<text x="{x:g}" y="{y}">{_xml(text)}</text>'
           for x, y, text in zip(places, ys, texts, strict=True)]
  labels, words = (''.join(part) for part in (drawn[:len(depths)], drawn[len(depths):]))
  width, height = sum(_widths(tree)), bottom + _GAP
  return (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
          f'aria-label="{_xml(bracketed(tree))}" '
          f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
          f'font-family="monospace" font-size="{_FONT}" text-anchor="middle" fill="currentColor">'
          f'<g fill="none" stroke="currentColor" opacity="0.5">{lines}</g>'
          f'<g font-weight="bold">{labels}</g><g>{words}</g></svg>')


def _children(tree: Tree) -> list[list[int]]:
  """Returns what each constituent holds: brackets by index, and words by -1 - index."""
  children = [[] for _ in tree.brackets]
  inside, brackets = [], 0
  for step, _, word in walk(tree):
    if step == ')':
      inside.pop()
      continue
    if inside:
      children[inside[-1]].append(brackets if step else -1 - word)
    if step:
      inside.append(brackets)
      brackets += 1
  return children


def _lines_inside(tree: Tree, items: Sequence[int]) -> list[int | str]:
  """Joins words that follow each other."""
  found = []
  for item in items:
    if item >= 0:
      found.append(item)
    elif found and isinstance(found[-1], str):
      found[-1] += f' {tree.words[-1 - item]}'
    else:
      found.append(tree.words[-1 - item])
  return found


def _widths(tree: Tree) -> list[int]:
  """Returns the width of each word in pixels; widens words to fit the labels above them."""
  widths = [_pixels(word) for word in tree.words]
  for label, start, stop in tree.brackets:
    widths[start] += max(0, _pixels(label) - sum(widths[start:stop]))
  return widths


def _pixels(text: str) -> int:
  """Returns the width of a text and of the gap beside it; wide characters count twice."""
  return _GAP + _LETTER * sum(1 + (unicodedata.east_asian_width(each) in 'WF') for each in text)


def _layout(tree: Tree) -> tuple[list[float], list[int], list[tuple[int, int]]]:
  """Returns the middles of all brackets and then all words, the brackets' depths, and the edges."""
  middles, left = [], 0
  for width in _widths(tree):
    middles.append(left + width / 2)
    left += width
  places, depths, edges = [0.0] * len(tree.brackets), [0] * len(tree.brackets), []
  children = _children(tree)
  for place, items in enumerate(children):
    for item in items:
      if item >= 0:
        depths[item] = depths[place] + 1
      edges.append((place, item if item >= 0 else len(tree.brackets) - 1 - item))
  for place in reversed(range(len(tree.brackets))):  # Parts have larger indices.
    ends = [places[item] if item >= 0 else middles[-1 - item]
            for item in (children[place][0], children[place][-1])]
    places[place] = sum(ends) / 2
  return places + middles, depths, edges


def _xml(text: str) -> str:
  return html.escape(_NOT_XML.sub('\ufffd', text))
