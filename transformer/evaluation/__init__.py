"""Scores of translations: evaluation sets, metrics, result files, reports."""
