"""Runs the conformance checks on a model with small sizes, in about a minute.

  python -m transformer.testing --model=MODULE:CLASS
  python -m transformer.testing --config=FILE.py [--config.model.KEY=VALUE …] [--model=MODULE:CLASS]

Without --model, it checks `model.module` of the config, by default this project's Transformer. The
first line names the model and the settings with which it is checked. It requires pytest, and exits
with status 1 if a check fails.
"""

import dataclasses
import importlib.util
import json
import os
import sys
from pathlib import Path

from absl import flags

from transformer import plugins
from transformer.cli import shared_flags
from transformer.errors import UserError
from transformer.system import command_line

_CONFIG = shared_flags.define_config()
_MODEL = flags.DEFINE_string(
  'model',
  None,
  'The class of the model, MODULE:CLASS. If --config.model.module names the same class, its '
  'settings are used.',
)


def main(_):
  """Validates the flags, and runs the tests of this package."""
  if not importlib.util.find_spec('pytest'):
    raise UserError(
      'the checks need pytest, which is not installed: pip install pytest'
    )
  from transformer.config import Config

  config = Config.from_dict(_CONFIG.value.to_dict() if _CONFIG.value else {})
  model = config.model
  if _MODEL.value and plugins.name_of(model.module) != _MODEL.value:
    model = dataclasses.replace(model, module=_MODEL.value)
  os.environ['JAX_PLATFORMS'] = 'cpu'  # Before JAX is imported.
  os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS'] = (
    'True'  # Optimizing these short programs costs more time than it saves.
  )
  os.environ['TESTED_MODEL'] = json.dumps(dataclasses.asdict(model))
  from transformer.testing import model_under_test

  # An invalid model fails here, in one line.
  subject = model_under_test.load(os.environ['TESTED_MODEL'])
  print(model_under_test.describe(subject.config), flush=True)
  import pytest

  folder = Path(__file__).parent
  sys.exit(
    pytest.main(
      [
        str(folder / 'test_model.py'),
        f'--rootdir={folder}',
        f'--config-file={os.devnull}',
        '--import-mode=importlib',
        '-p',
        'no:cacheprovider',
        '--verbose',
        '--no-header',
        '--tb=short',
      ]
    )
  )


start = command_line.entry_point(main)

if __name__ == '__main__':
  start()
