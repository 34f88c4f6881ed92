"""Significance tests and tables that compare results."""
