"""Scores of translations: requests, texts, metrics, files of results, reports."""
