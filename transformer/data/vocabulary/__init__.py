"""Vocabularies: text to tokens and back."""
