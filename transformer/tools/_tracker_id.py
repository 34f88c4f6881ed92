"""The id by which a tracker knows a run: a file in the run's directory, which copies share."""

import json
from pathlib import Path
from typing import Any

from transformer.runs.run_directory import read_record
from transformer.system.progress import warn


def identity(workdir: Path) -> dict[str, str]:
  """Returns what tells a run from its copies and from other runs in its directory."""
  return {'workdir': str(workdir.resolve()), 'started': read_record(workdir)['started']}


def known_run(path: Path, key: str) -> dict[str, Any]:
  """Returns the content of a tracker's file; {} without a file or, with a warning, for another run.

  `key` is the name of the id in the file. A run whose directory was moved is the same run.
  """
  known = _content(path)
  here = identity(path.parent)
  if not known:
    return {}
  original = Path(known['workdir']) / path.name
  if known['started'] != here['started']:
    warn(
      f'{path} is of an earlier run in this directory, so the tracker gets a new run'
    )
    return {}
  if known['workdir'] != here['workdir'] and _content(original).get(key) == known[key]:
    warn(
      f'{path.parent} is a copy of {original.parent}, so the tracker gets a new run; it has no '
      f'earlier lines'
    )
    return {}
  return known


def warn_of_lines(path: Path, step: int, last: int):
  """Warns that a tracker, which has lines up to step `last`, ignores those of a run's start."""
  if step == 0 < last:
    warn(
      f'the run begins again, and the tracker has its lines up to step {last}, so it gets only '
      f'later ones; to send all lines as another run, remove {path} before the start'
    )


def _content(path: Path) -> dict[str, Any]:
  return json.loads(path.read_text('utf-8')) if path.exists() else {}
