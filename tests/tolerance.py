"""How far rounding takes two ways to compute a number apart, on any processor."""

from transformer.testing.tolerance import rounding

__all__ = ['rounding']
