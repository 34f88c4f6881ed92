"""The location of this code, and the names of its commands and configs there.

An installed package has train.py, eval.py and configs/ in a folder `attention_commands`.
"""

import importlib.metadata
import json
import re
import sys
from pathlib import Path

from transformer import files

TOP = Path(__file__).absolute().parents[2]
# The files of this project in `TOP`, which may also contain other packages.
_OURS = (
  'transformer',
  'attention_commands',
  'train.py',
  'eval.py',
  'configs',
  'launch',
  'benchmarks',
)
_COMMAND = re.compile(
  r'(?:python )?\b(train|eval)\.py\b|'
  r'python -m transformer\.(?:cli|tools)\.(\w+)'
)


def is_project_file(path: Path) -> bool:
  """Returns whether a file belongs to this project, rather than to a library."""
  return any(path.is_relative_to(TOP / name) for name in _OURS)


def rewrite_commands(text: str) -> str:
  """Returns a text with its commands as the user types them: `attention-eval` if installed."""
  # A checkout may be installed, too.
  started_installed = Path(sys.argv[0]).name.startswith('attention-')
  if not started_installed and folder() == TOP:
    return text
  return _COMMAND.sub(lambda command: f'attention-{command[command.lastindex]}', text)


def folder() -> Path:
  """Returns the folder with train.py, eval.py and configs/."""
  installed = TOP / 'attention_commands'
  return installed if installed.is_dir() else TOP


def find_config(value: str) -> str:
  """Returns a value of `--config`, PATH or PATH:ARGUMENT, with the path of a file.

  If configs/NAME.py does not exist in the working directory, this project's file is used. For the
  directory of a run, or a copy of its config.json under any name, the file is configs/base.py,
  which reads the settings of the run. Also extends `sys.path`, so that a config can import
  `configs`: from its own folder, the working directory or this project.
  """
  if value and (value.endswith('.json') or files.as_path(value).is_dir()):
    value = f'{folder()}/configs/base.py:{value}'
  name, colon, argument = value.partition(':')
  path = Path(name)
  ours = folder() / name
  if path.parent == Path('configs') and not path.exists() and ours.is_file():
    path = ours
  places = [Path.cwd(), folder()]
  if path.absolute().parent.name == 'configs':
    places.insert(0, path.absolute().parents[1])
  for place in places:
    if (place / 'configs').is_dir() and str(place) not in sys.path:
      sys.path.append(str(place))
  return f'{path}{colon}{argument}'


def installed_commit() -> str:
  """Returns the commit that pip installed this code from; `unknown` if pip did not record it."""
  try:
    origin = importlib.metadata.distribution('attention-is-all-you-need-jax')
  except importlib.metadata.PackageNotFoundError:
    return 'unknown'
  if Path(origin.locate_file('')).resolve() != TOP.resolve():
    return 'unknown'  # Another copy is installed.
  record = json.loads(origin.read_text('direct_url.json') or '{}')
  return record.get('vcs_info', {}).get('commit_id', 'unknown')
