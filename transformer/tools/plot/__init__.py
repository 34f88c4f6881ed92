"""Curves of runs."""
