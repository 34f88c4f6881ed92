"""The settings that differ between two configs."""

from transformer.cli.flag_parsers import ConfigFile
from transformer.config import Config, flatten
from transformer.system import installation


def differences(first_config: str, second_config: str) -> list[str]:
  """Returns one line per setting that differs, with both values, in the order of the settings.

  Each config is a value of `--config`: a config file, the directory of a run, or its config.json.
  """
  first = _settings(first_config)
  second = _settings(second_config)
  lines = []
  for name, value in first.items():
    if value != second[name]:
      lines.append(f'{name}: {value!r} -> {second[name]!r}')
  return lines


def _settings(config: str) -> dict[str, object]:
  """Returns the checked settings of a config, by dotted name."""
  tree = ConfigFile().parse(installation.find_config(config))
  settings = Config.from_dict(tree.to_dict())
  return flatten(settings.to_dict())
