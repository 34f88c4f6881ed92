"""Draws the figures of the pages, from the values that their Python code computes, and diagrams.

  python docs/figures.py                 # fails if a figure is stale
  python docs/figures.py --write         # writes the figures to docs/figures/
  python docs/figures.py --write --run   # also the figures of the model in runs/quickstart
  python docs/figures.py --write --folder=DIR

The same numbers and the same version of matplotlib give the same files. Without --write, figures of
another version are not compared.
"""

import argparse
import io
import pathlib
import re
import sys

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from diagrams import architecture, attention  # From this folder.
from inside_figures import logit_lens, positions, saliency, sentence_similarity
from run_pages import run_page

# Colors of Okabe and Ito, as on the attention page.
COLORS = ('#0072b2', '#e69f00', '#009e73', '#d55e00', '#cc79a7', '#56b4e9', '#000000')
DOCS = pathlib.Path(__file__).resolve().parent
_STYLE = {
  'svg.fonttype': 'none',
  'svg.hashsalt': 'figures',
  'font.size': 9,
  'axes.titlesize': 9,
  'path.simplify': False,
}


def similarity(page) -> Figure:
  """Returns a figure: similarity of four words, weights of two forms, vectors before and after."""
  figure = Figure(figsize=(10, 2.8), layout='constrained')
  figure.get_layout_engine().set(w_pad=0.1)  # A browser's font may be wider.
  *places, plane = figure.subplots(1, 4, width_ratios=(1, 1, 1, 1.3))
  words = page['words']
  for place, title, table in zip(
    places,
    ('dot products', 'weights, softmax(X Xᵀ)', 'weights over the others'),
    (page['likeness_TS'], page['weights_TS'], page['others_TS']),
    strict=True,
  ):
    _heatmap(place, table, words, words, title, numbers=True)
  for number, (form, weights_TS) in enumerate(
    (('softmax(X Xᵀ) X', page['weights_TS']), ('over the others', page['others_TS']))
  ):
    color = f'C{number}'
    for word, left in (('cat', 4), ('walks', -8)):
      start, end = (
        vectors[words.index(word), 1:3]
        for vectors in (page['x_TD'], weights_TS @ page['x_TD'])
      )
      plane.annotate(
        '',
        end,
        start,
        arrowprops={'arrowstyle': '->', 'color': color, 'shrinkA': 0, 'shrinkB': 0},
      )
      if not number:
        plane.annotate(word, start, xytext=(left, 6), textcoords='offset points')
        plane.plot(*start, 'o', color='black', markersize=4)
    plane.plot([], [], color=color, label=form)
  plane.set(
    xlabel='animal',
    ylabel='motion',
    xlim=(0, 2.5),
    ylim=(0, 2.9),
    title='vectors, before and after',
  )
  plane.legend(loc='upper right', fontsize=7)
  return figure


def sinusoids(page) -> Figure:
  """Returns a figure of the sinusoids of 100 positions, and their dot products over distance."""
  encoding = page['sinusoidal_encoding']
  figure = Figure(figsize=(10, 3), layout='constrained')
  *pictures, curves = figure.subplots(1, 3, width_ratios=(1, 1.15, 2))
  for first, (kind, place) in enumerate(zip(('sine', 'cosine'), pictures, strict=True)):
    image = place.imshow(
      encoding(np.arange(100), 128)[:, first::2],
      cmap='RdBu_r',
      vmin=-1,
      vmax=1,
      aspect='auto',
      interpolation='nearest',
    )
    place.set(xlabel='pair of dims, i', title=f'{kind}s of width 128')
  pictures[0].set_ylabel('position')
  figure.colorbar(image, ax=pictures[1])
  distances = np.arange(-100, 101)
  for width in (32, 128, 512):
    table = encoding(np.arange(201), width).astype(np.float64)
    curves.plot(
      distances, table @ table[100] / (width / 2), label=f'width {width}', linewidth=1.2
    )
  curves.set(xlabel='distance', title='dot product with a position, over width / 2')
  curves.legend(fontsize=8)
  curves.grid(alpha=0.3)
  return figure


def heads(page) -> Figure:
  """Returns a figure of the cross-attention weights of all heads of the last layer."""
  cross_HTS = page['cross_LHTS'][-1]
  figure = Figure(figsize=(10, 3), layout='constrained')
  for head, place in enumerate(figure.subplots(1, len(cross_HTS), sharey=True)):
    _heatmap(
      place,
      cross_HTS[head],
      page['target_pieces'],
      page['source_pieces'],
      f'head {head}',
    )
  return figure


def attention_lines(page) -> Figure:
  """Returns a figure of all heads of the last encoder layer: for all tokens, and for one."""
  pieces, encoder_HTS = page['long_pieces'], page['encoder_LHTS'][-1]
  heads, length = encoder_HTS.shape[:2]
  figure = Figure(figsize=(10, 4), layout='constrained')
  figure.get_layout_engine().set(w_pad=0.1)
  both = (
    ('all tokens', range(length)),
    (f'only {pieces[page["query"]]}', [page['query']]),
  )
  for place, (title, queries) in zip(figure.subplots(1, 2), both, strict=True):
    for head in range(heads):
      shift = 0.1 * (head - (heads - 1) / 2)  # So that heads do not overlap.
      drawn = [
        (query, key)
        for query in queries
        for key in range(length)
        if encoder_HTS[head, query, key] >= 0.02
      ]
      place.add_collection(
        LineCollection(
          [[(0, query + shift), (1, key + shift)] for query, key in drawn],
          colors=COLORS[head % len(COLORS)],
          linewidths=1.5,
          alpha=[float(encoder_HTS[head, query, key]) for query, key in drawn],
        )
      )
      place.plot([], [], color=COLORS[head % len(COLORS)], label=f'head {head}')
    place.set(xlim=(0, 1), ylim=(length - 0.5, -0.5), xticks=[], title=title)
    place.set_yticks(range(length), pieces)
    place.tick_params(length=0, labelright=True)
    place.spines[:].set_visible(False)
  figure.legend(
    *place.get_legend_handles_labels(), loc='outside lower center', ncols=heads
  )
  return figure


PAGES = {
  'notes': (similarity,),
  'notes-order': (sinusoids,),
  'paper': (architecture, attention),
}
PAGES_OF_A_RUN = {
  'inside': (logit_lens, saliency, sentence_similarity, positions),
  'notes-translation': (heads, attention_lines),
}


def _heatmap(place, table, rows, columns, title, numbers=False):
  """Plots a matrix of nonnegative numbers, white at 0, with the names of rows and columns."""
  table = np.asarray(table)
  place.imshow(
    table, cmap='Blues', vmin=0, vmax=max(1, table.max()), interpolation='nearest'
  )
  place.set_xticks(range(len(columns)), columns, rotation=0 if numbers else 90)
  place.set_yticks(range(len(rows)), rows)
  place.set_title(title)
  if numbers:
    for (row, column), number in np.ndenumerate(table):
      place.text(
        column,
        row,
        f'{number:.2f}',
        ha='center',
        va='center',
        fontsize=8,
        color='white' if number > 0.6 * max(1, table.max()) else 'black',
      )


def draw(pages) -> dict[str, bytes]:
  """Returns the figures of pages as SVG files, by name."""
  drawn = {}
  for page, figures in pages.items():
    names = run_page(DOCS / f'{page}.md')
    for figure in figures:
      drawn[f'{figure.__name__}.svg'] = picture(figure, names)
  return drawn


class Picture(bytes):
  """An SVG file, which a notebook shows as wide as its cells are."""

  def _repr_svg_(self) -> str:
    return re.sub(r' (width|height)="[\d.]+pt"', '', self.decode(), count=2)


def picture(figure, names) -> Picture:
  """Returns a figure drawn from the variables of a page."""
  with matplotlib.rc_context(
    {**matplotlib.rcParamsDefault, 'backend': 'svg', **_STYLE}
  ):
    content = io.BytesIO()
    figure(names).savefig(content, format='svg', metadata={'Date': None})
  return Picture(
    b''.join(line.rstrip() + b'\n' for line in content.getvalue().splitlines())
  )


def _version(svg: bytes) -> bytes:
  return re.search(rb'Matplotlib v[\d.]+', svg)[0]


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--write', action='store_true')
  parser.add_argument('--run', action='store_true')
  parser.add_argument('--folder', type=pathlib.Path, default=DOCS / 'figures')
  flags = parser.parse_args()
  drawn = draw({**PAGES, **PAGES_OF_A_RUN} if flags.run else PAGES)
  for name, svg in drawn.items():
    path = flags.folder / name
    old = path.read_bytes() if path.exists() else None
    if flags.write:
      flags.folder.mkdir(parents=True, exist_ok=True)
      path.write_bytes(svg)
    elif old != svg and (old is None or _version(old) == _version(svg)):
      sys.exit(f'{path} is stale: run python docs/figures.py --write')


if __name__ == '__main__':
  main()
