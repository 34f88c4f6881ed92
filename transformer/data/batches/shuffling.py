"""Random permutations with random access: elements are computed without a table."""

import numpy as np

_ROUNDS = 8


def permute(
  index: np.ndarray, size: np.ndarray | int, key: np.ndarray | int
) -> np.ndarray:
  """Returns the images of `index` under random permutations of 0 … size − 1 that `key` selects.

  A Feistel network permutes a rectangle of about `size` cells. An image outside the range is
  permuted again until it is inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains",
  2002). `size` int64 and `key` uint64 are scalars, or [elements] with one value per element.
  """
  size = np.broadcast_to(np.int64(size), index.shape)
  key = np.broadcast_to(np.uint64(key), index.shape)
  value = np.array(index, np.int64)
  left = np.ceil(np.sqrt(size)).astype(np.int64)
  right = -(-size // left)
  outside = np.arange(len(value))
  while len(outside):
    value[outside] = _rounds(
      value[outside], left[outside], right[outside], key[outside]
    )
    outside = outside[value[outside] >= size[outside]]
  return value


def mix_bits(bits: np.ndarray) -> np.ndarray:
  """Mixes the bits of uint64 numbers (the finalizer of SplitMix64, Steele et al., 2014)."""
  bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return bits ^ (bits >> np.uint64(31))


def _rounds(value, left_size, right_size, key):
  """Rotates each half in turn by an amount that depends on the other half and the key."""
  left, right = np.divmod(value, right_size)
  for index in range(0, _ROUNDS, 2):
    left = _turn(left, right, left_size, key, index)
    right = _turn(right, left, right_size, key, index + 1)
  return left * right_size + right


def _turn(half, other, size, key, index):
  mixed = mix_bits(mix_bits(key + np.uint64(index)) + other.astype(np.uint64))
  return (half + (mixed >> np.uint64(1)).astype(np.int64) % size) % size
