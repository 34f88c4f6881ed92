"""The rows of the paper's table 3: scaled settings of each row, and the paper's results."""

import math
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.config import Config
from transformer.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
BASE_LAYERS = 6
# The paper's perplexity per word piece and BLEU on newstest2013; millions of parameters, if
# reported.
PAPER = {
  'base': (4.92, 25.8, 65),
  'A1': (5.29, 24.9, None),
  'A2': (5.00, 25.5, None),
  'A3': (4.91, 25.8, None),
  'A4': (5.01, 25.4, None),
  'B1': (5.16, 25.1, 58),
  'B2': (5.01, 25.4, 60),
  'C1': (6.11, 23.7, 36),
  'C2': (5.19, 25.3, 50),
  'C3': (4.88, 25.5, 80),
  'C4': (5.75, 24.5, 28),
  'C5': (4.66, 26.0, 168),
  'C6': (5.12, 25.4, 53),
  'C7': (4.75, 26.2, 90),
  'D1': (5.77, 24.6, None),
  'D2': (4.95, 25.5, None),
  'D3': (4.67, 25.3, None),
  'D4': (5.47, 25.7, None),
  'E': (4.92, 25.7, None),
  'big': (4.33, 26.4, 213),
}


class Row(NamedTuple):
  """A row to train.

  Attributes:
    name: the group and the number within it, such as `A1`.
    differs: the settings that differ from the base row, by dotted name.
    width_divisor: the divisor of the paper's widths.
    changes: all settings that override the config file, by dotted name.
    settings: all settings of the run.
  """

  name: str
  differs: Mapping[str, Any]
  width_divisor: int
  changes: Mapping[str, Any]
  settings: Config


def plan(
  names: Sequence[str],
  config: ConfigDict,
  overrides: Mapping[str, Any],
  width_divisor: int,
  layers: int,
) -> list[Row]:
  """Returns the rows to train, all checked.

  Args:
    names: keys of `PAPER`.
    config: the settings of the config file and the command line.
    overrides: only the settings of the command line.
    width_divisor: the divisor of every width.
    layers: the number of layers of the base row.

  Raises:
    UserError: a row is incompatible with the config, the overrides, the divisor or the layers.
  """
  base, base_steps = _of_the_paper('base', width_divisor, layers)
  clashes = sorted(base.keys() & overrides.keys())
  if clashes:
    raise UserError(
      f'the rows of table 3 set config.{clashes[0]} themselves; remove --config.{clashes[0]}; use '
      '--width_divisor and --layers for smaller rows'
    )
  rows = []
  for name in names:
    shape, steps = _of_the_paper(name, width_divisor, layers)
    differs = {key: value for key, value in shape.items() if value != base[key]}
    if steps != base_steps:
      differs['train.steps'] = config.train.steps * steps // base_steps
    changes = {**overrides, **shape, **differs}
    settings = ConfigDict(config.to_dict())
    settings.update_from_flattened_dict(changes)
    try:
      rows.append(
        Row(name, differs, width_divisor, changes, Config.from_dict(settings.to_dict()))
      )
    except UserError as error:
      raise UserError(
        f'row {name} is incompatible with this config: {error}; change the config, or exclude '
        'the row with --rows'
      ) from error
    if (decoder_layers := rows[-1].settings.model.decoder_layers) is not None:
      raise UserError(
        'the rows of table 3 set config.model.num_layers for both stacks; remove '
        f'config.model.decoder_layers={decoder_layers}'
      )
  return rows


def _of_the_paper(
  name: str, width_divisor: int, layers: int
) -> tuple[dict[str, Any], int]:
  """Returns the scaled settings of a row, by dotted name, and the paper's number of steps."""
  # The config is loaded as a file instead of imported, as in train.py.
  get_config = runpy.run_path(str(ROOT / 'configs' / 'table3.py'))['get_config']
  settings = Config.from_dict(get_config(name).to_dict())
  model = settings.model
  widths = {
    'model_dim': model.model_dim,
    'ff_dim': model.ff_dim,
    'key_dim': model.head_key_dim,
    'value_dim': model.head_value_dim,
  }
  for key, width in widths.items():
    if width % width_divisor:
      raise UserError(
        f'--width_divisor must divide every width of a row; {key} of row {name} is {width}, '
        f'got --width_divisor={width_divisor}'
      )
  num_layers, remainder = divmod(model.num_layers * layers, BASE_LAYERS)
  if remainder:
    multiple = BASE_LAYERS // math.gcd(model.num_layers, BASE_LAYERS)
    raise UserError(
      f'--layers must be a multiple of {multiple} for row {name}, which has {model.num_layers} '
      f'layers where base has {BASE_LAYERS}; got --layers={layers}; change it, or exclude the '
      'row with --rows'
    )
  return {
    'model.num_layers': num_layers,
    'model.num_heads': model.num_heads,
    **{f'model.{key}': width // width_divisor for key, width in widths.items()},
    'model.dropout': model.dropout,
    'model.positions': model.positions,
    'train.label_smoothing': settings.train.label_smoothing,
  }, settings.train.steps
