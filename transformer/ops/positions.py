"""Positional encodings."""

import numpy as np


def sinusoidal_positions(length, dim):
  """The paper's fixed encodings: section 3.5.

  PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos(p / 10000^(2i/D)),
  sine and cosine interleaved as published. For any k, PE(p + k) is a linear map
  of PE(p), the same for all p.

  Args:
    length: number of positions, T.
    dim: model width, D; an odd one ends on a sine.

  Returns:
    [T, D] float32, computed in float64 on the host, so that it is a constant of
    the compiled program.
  """
  position = np.arange(length, dtype=np.float64)[:, None]
  even = np.arange(0, dim, 2, dtype=np.float64)[None, :]
  angles = position / 10_000.0 ** (even / dim)
  table = np.empty((length, dim), np.float32)
  table[:, 0::2] = np.sin(angles)
  table[:, 1::2] = np.cos(angles[:, : dim // 2])
  return table
