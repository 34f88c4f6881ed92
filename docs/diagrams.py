"""Diagrams of the paper's figures 1 and 2, with the file of every part; figures.py draws them.

Lengths are in points, from the lower left corner. The color of a part depends on its file's folder.
"""

from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch

_COLORS = {'model': '#cfe6f5', 'ops': '#fbe3b5'}
_WIDE, _HIGH = 108, 27  # The size of most boxes.
_EDGE = {'edgecolor': '#333333', 'linewidth': 0.8}


def architecture(_page) -> Figure:
  """Returns a diagram of encoder and decoder, with the norm after the residual sum."""
  figure, place = _sheet(388, 550)
  left, right, between = 102, 286, 194
  for x, name, given, file in (
    (left, 'Input', 'Inputs', 'data/batch.py'),
    (right, 'Output', 'Outputs (shifted right)', 'training/objective.py'),
  ):
    _words(place, x, 14, given, file)
    _arrow(place, (x, 26), (x, 40))
    _box(place, x, 40, f'{name} Embedding', 'model/layers.py')
    _arrow(place, (x, 67), (x, 88))
    place.add_patch(Circle((x, 96), 8, facecolor='white', **_EDGE))
    _arrow(place, (x - 4.5, 96), (x + 4.5, 96), head='-')
    _arrow(place, (x, 91.5), (x, 100.5), head='-')
  _box(place, between, 96 - _HIGH / 2, 'Positional Encoding', 'ops/positions.py')
  _arrow(place, (between - _WIDE / 2, 96), (left + 8, 96))
  _arrow(place, (between + _WIDE / 2, 96), (right - 8, 96))
  top, _ = _stack(
    place, left, -1, 'Encoder layers, N ×', 'Multi-Head Attention', 'Feed Forward'
  )
  y, (_, across, _) = _stack(
    place,
    right,
    1,
    'Decoder layers, N ×',
    'Masked\nMulti-Head Attention',
    'Multi-Head Attention',
    'Feed Forward',
  )
  _arrow(
    place,
    (left, top),
    (left, top + 28),
    (between, top + 28),
    (between, across),
    (right - _WIDE / 2, across),
  )
  place.text(206, across + 4, 'K, V', ha='center', fontsize=7.5)
  for word in ('Linear', 'Softmax'):
    _arrow(place, (right, y), (right, y + 19))
    y = _box(place, right, y + 19, word, 'ops/linear.py')
  _arrow(place, (right, y), (right, y + 14))
  place.text(right, y + 21, 'Output Probabilities', ha='center', va='center')
  _box(place, left, 510, 'model/', 'layers with parameters')
  _box(place, left, 476, 'ops/', 'pure functions')
  return figure


def attention(_page) -> Figure:
  """Returns a diagram of scaled dot-product attention, and multi-head attention."""
  figure, place = _sheet(432, 304)
  one, all_heads, y, file = 88, 310, 32, 'ops/attention.py'
  for x, title in (
    (one, 'Scaled Dot-Product Attention'),
    (all_heads, 'Multi-Head Attention'),
  ):
    place.text(x, 294, title, ha='center', va='center', fontweight='bold')
  for x, name in (
    (58, 'Q'),
    (118, 'K'),
    (172, 'V'),
    (240, 'Q'),
    (310, 'K'),
    (380, 'V'),
  ):
    place.text(x, 10, name, ha='center', va='center')
    if x != 172:
      _arrow(place, (x, 17), (x, y))
  for word in ('MatMul', 'Scale', 'Mask (opt.)', 'SoftMax', 'MatMul'):
    end = _box(place, one, y, word, 'ops/masks.py' if word.startswith('Mask') else file)
    y = end + 22
    _arrow(place, (one, end), (one, y))
  _arrow(place, (172, 17), (172, end - _HIGH / 2), (one + _WIDE / 2, end - _HIGH / 2))
  for x in (240, 310, 380):
    end = _box(place, x, 32, 'Linear', 'model/\nattention.py', 58, 37, copies=2)
    _arrow(place, (x, end), (x, end + 30))
  end = _box(
    place, all_heads, end + 30, 'Scaled Dot-Product Attention', file, 198, copies=2
  )
  place.text(424, end - 20, 'h', ha='center', va='center')
  for word in ('Concat', 'Linear'):
    _arrow(place, (all_heads, end), (all_heads, end + 30))
    end = _box(place, all_heads, end + 30, word, 'model/attention.py')
  _arrow(place, (all_heads, end), (all_heads, y))
  return figure


def _sheet(width, height):
  figure = Figure(figsize=(width / 72, height / 72))
  place = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
  place.set_axis_off()
  return figure, place


def _words(place, x, y, word, file, rotation=0):
  """Writes a term of the paper, and below it, smaller, a file of this code."""
  lines = [(part, 9) for part in word.split('\n')] + [
    (part, 7.5) for part in file.split('\n')
  ]
  for number, (text, size) in enumerate(lines):
    shift = 10.5 * ((len(lines) - 1) / 2 - number)
    place.text(
      x - shift if rotation else x,
      y if rotation else y + shift,
      text,
      ha='center',
      va='center',
      fontsize=size,
      rotation=rotation,
    )


def _box(place, x, y, word, file, wide=_WIDE, high=_HIGH, copies=0):
  """Draws a part above y, with copies behind it, and returns its upper edge."""
  color = _COLORS[(word if word.endswith('/') else file).split('/')[0]]
  for shift in range(4 * copies, -1, -4):
    place.add_patch(
      FancyBboxPatch(
        (x - wide / 2 + shift, y + shift),
        wide,
        high,
        boxstyle='round,pad=0,rounding_size=4',
        facecolor=color,
        **_EDGE,
      )
    )
  _words(place, x, y + high / 2, word, file)
  return y + high + 4 * copies


def _arrow(place, *points, head='-|>'):
  """Draws a line through points."""
  place.plot(*zip(*points[:-1], strict=True), color='#333333', linewidth=0.8)
  place.annotate(
    '',
    points[-1],
    points[-2],
    arrowprops={
      'arrowstyle': head,
      'color': '#333333',
      'linewidth': 0.8,
      'shrinkA': 0,
      'shrinkB': 0,
    },
  )


def _stack(place, x, side, name, *sublayers):
  """Draws the sublayers of a layer; returns the upper edge and the middle of each sublayer."""
  middles, end = [], 104
  for word in sublayers:
    bottom = end + 39
    _arrow(place, (x, end), (x, bottom))
    top = _box(
      place,
      x,
      bottom,
      word,
      'model/layers.py' if word == 'Feed Forward' else 'model/attention.py',
      high=_HIGH + 10.5 * word.count('\n'),
    )
    middles.append((bottom + top) / 2)
    edge = x + side * (_WIDE / 2 + 8)
    _arrow(place, (x, top), (x, top + 12))
    end = _box(place, x, top + 12, 'Add & Norm', 'model/layers.py')
    _arrow(
      place,
      (x, bottom - 16),
      (edge, bottom - 16),
      (edge, end - _HIGH / 2),
      (x + side * _WIDE / 2, end - _HIGH / 2),
    )
  place.add_patch(
    FancyBboxPatch(
      (x - 70, 116),
      140,
      end + 10 - 116,
      facecolor='#f4f4f4',
      boxstyle='round,pad=0,rounding_size=8',
      zorder=0,
      **_EDGE,
    )
  )
  _words(place, x + side * 88, (116 + end) / 2, name, 'model/transformer.py', 90)
  return end, middles
