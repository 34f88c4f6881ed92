"""Attention weights as an HTML table, whose cells are shaded by CSS."""

import html
from collections.abc import Sequence

import numpy as np


def attention_table(
  source: Sequence[str], target: Sequence[str], weights_TS: np.ndarray, kind: str
) -> str:
  """Returns a table with one row per target piece and one column per source piece.

  A cell has the square root of its weight as the CSS variable `--w`, since small weights matter.
  `kind` is `map`, or `small` for a table whose labels report.css hides.
  """
  rows = [f'<tr><th></th>{"".join(map(_label, source))}</tr>']
  for piece, weights_S in zip(target, weights_TS.tolist(), strict=True):
    cells = ''.join(map(_cell, weights_S))
    rows.append(f'<tr>{_label(piece)}{cells}</tr>')
  return f'<table class="{kind}">{"".join(rows)}</table>'


def _label(piece: str) -> str:
  """Returns a piece as a table heading; non-printable characters are replaced."""
  letters = [
    letter if letter.isprintable() else '\N{REPLACEMENT CHARACTER}' for letter in piece
  ]
  return f'<th><span>{html.escape("".join(letters))}</span></th>'


def _cell(weight: float) -> str:
  return f'<td style="--w:{100 * weight**0.5:.0f}%" title="{100 * weight:.0f}%">'
