"""Checks of what every model must keep; `building` in `transformer.model` describes a model.

  python -m transformer.testing --model=MODULE:CLASS [--config=FILE.py] [--config.model.KEY=VALUE …]
  TESTED_MODEL=MODULE:CLASS python -m pytest --pyargs transformer.testing

In Python, each function in `checks.CHECKS` takes a `subject.Subject` and raises `subject.Broken`
with one sentence: what is broken, and what it does to results. Only `test_model` needs pytest.
"""
