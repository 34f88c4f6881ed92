"""A file of settings preserves all of them."""

import runpy

from launch.config_file import config_file, with_settings
from transformer.config import Config


def test_every_config_round_trips_through_its_file(tmp_path):
  settings = {
    'model.key_dim': 7,
    'data.train': ('a "b" \\', 'c'),
    'data.passes_per_epoch': (0.5, 1.0),
    'optimizer.clip_norm': 2.5,
    'model.tie_output': False,
    'seed': 3,
    'optimizer.peak_learning_rate': 1 / 3,
    'data.dir': "it's",
    'model.num_layers': 6,
  }
  config = with_settings(Config(), settings)
  (tmp_path / 'file.py').write_bytes(
    config_file('By """ and \\.\n\nEnds in "', config, ['seed', 'model.num_layers'])
  )
  defined = runpy.run_path(str(tmp_path / 'file.py'))
  assert defined['__doc__'] == 'By """ and \\.\n\nEnds in "'
  assert Config.from_dict(defined['get_config']().to_dict()) == config
  lines = (tmp_path / 'file.py').read_text().splitlines()
  assert [line for line in lines if line.endswith('# searched')] == [
    '  config.model.num_layers = 6  # searched',
    '  config.seed = 3  # searched',
  ]
  assert sum('num_layers' in line for line in lines) == 1
