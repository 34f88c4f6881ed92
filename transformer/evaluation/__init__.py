"""Scores of translations: texts, metrics, files of results, reports."""
