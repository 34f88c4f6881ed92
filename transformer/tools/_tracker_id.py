"""A tracker's id of a run, stored in a file of the run's directory and copied with it."""

import json
from pathlib import Path
from typing import Any

from transformer.runs.run_directory import read_record
from transformer.system.progress import log_warning


def identity(workdir: Path) -> dict[str, str]:
  """Returns an identity that differs between a run, its copies, and other runs in its directory."""
  return {'workdir': str(workdir.resolve()), 'started': read_record(workdir)['started']}


def known_run(path: Path, key: str) -> dict[str, Any]:
  """Returns the content of a tracker's file; {} without a file or, with a warning, for another run.

  `key` is the name of the id in the file. Moving a run's directory does not change its identity.
  """
  record = _content(path)
  current = identity(path.parent)
  if not record:
    return {}
  original = Path(record['workdir']) / path.name
  if record['started'] != current['started']:
    log_warning(
      f'{path} belongs to an earlier run in this directory, so the tracker starts a new run'
    )
    return {}
  if (
    record['workdir'] != current['workdir']
    and _content(original).get(key) == record[key]
  ):
    log_warning(
      f'{path.parent} is a copy of {original.parent}, so the tracker starts a new run, without '
      'earlier lines'
    )
    return {}
  return record


def warn_about_skipped_steps(path: Path, step: int, last_step: int):
  """Warns if a restarted run logs steps that the tracker already has and therefore ignores."""
  if step == 0 < last_step:
    log_warning(
      f'the run starts over, but the tracker already has lines up to step {last_step}, so it '
      f'receives only later ones; to log all lines as a new run, remove {path} before starting'
    )


def _content(path: Path) -> dict[str, Any]:
  return json.loads(path.read_text('utf-8')) if path.exists() else {}
