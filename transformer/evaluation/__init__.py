"""Scores of translations: metrics, files of results, comparison of systems."""
