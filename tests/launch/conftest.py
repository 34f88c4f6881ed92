"""Starts the sweep's command, for tests of the mistakes that it refuses."""

import pytest


@pytest.fixture(scope='module')
def launch(start_command):
  yield from start_command('launch.sweep')
