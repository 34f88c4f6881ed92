"""Conformance checks for models; `transformer.model.building` defines the interface of a model.

  python -m transformer.testing --model=MODULE:CLASS [--config=FILE.py] [--config.model.KEY=VALUE …]
  TESTED_MODEL=MODULE:CLASS python -m pytest --pyargs transformer.testing

In Python, each function in `checks.CHECKS` takes a `model_under_test.ModelUnderTest`, and raises
`model_under_test.CheckFailed` with one sentence: the failure, and its effect on results. Only
`test_model` requires pytest.
"""
