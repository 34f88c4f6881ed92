"""Scores of translations: texts, metrics, result files, reports."""
