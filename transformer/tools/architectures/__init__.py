"""Architectures for `model.module`: each is one file, and docs/architectures.md describes it."""
