"""Fixtures for the tests of checkpoints."""

import shutil

import pytest
from absl import logging

from tests.runs.saved_checkpoints import save


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  """Returns a directory with checkpoints 1 to 3, which no test may change; 2 is the best."""
  directory = tmp_path_factory.mktemp('written') / 'checkpoints'
  save(directory, (1, 2, 3), bleu=(4, 6, 5))
  return directory


@pytest.fixture
def directory(written, tmp_path):
  shutil.copytree(written, tmp_path / 'checkpoints')
  return tmp_path / 'checkpoints'


@pytest.fixture
def warnings(monkeypatch):
  said = []
  monkeypatch.setattr(
    logging, 'warning', lambda text, *values: said.append(text % values)
  )
  return said
