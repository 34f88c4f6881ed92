"""The files in a run's directory: their names, their content, and which of them exist."""

import contextlib
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

from transformer import files
from transformer.config import Config
from transformer.data.config import SEPARATE_VOCABULARIES, SHARED_VOCABULARY
from transformer.errors import UserError, short_repr
from transformer.runs.lock import LOCK
from transformer.system.installation import TOP, installed_commit

CONFIG = 'config.json'
RUN = 'run.json'
METRICS = 'metrics.jsonl'
CHECKPOINTS = 'checkpoints'
RESULTS = 'eval'
# The folder in `CHECKPOINTS` to which a checkpoint is moved before its files are deleted, so that a
# killed process leaves no partial checkpoint among the others.
REMOVED = 'removed'
# Packages that affect a run's numbers.
_PACKAGES = (
  'jax',
  'jaxlib',
  'flax',
  'optax',
  'orbax-checkpoint',
  'numpy',
  'sentencepiece',
  'sacrebleu',
  'tensorflow-datasets',
)
# The format of a run's files, recorded in `run.json`. It rises only with a new major version: runs
# of 1.x open, score and resume with every later 1.y.
FORMAT = 4
# The files that describe a run; of the vocabulary files, a run has only some.
RECORD_FILES = CONFIG, RUN, METRICS, *SHARED_VOCABULARY, *SEPARATE_VOCABULARIES
# An empty checkpoint item: a signal or an error stopped training there, and the evaluation of the
# step may be missing.
EVAL_PENDING = 'unfinished'
# The key in `run.json` of a run that has only weights, and no optimizer state.
WEIGHTS_ONLY = 'weights_of_steps'


def read_config_dict(workdir: Path) -> dict:
  """Returns the settings of a run as nested dicts.

  Raises `UserError` if the directory holds no run, the settings are corrupt, or the run has a
  different format.
  """
  path = workdir / CONFIG
  if not path.exists():
    raise UserError(f'{workdir} holds no run: there is no {CONFIG} in it')
  if (workdir / RUN).exists():  # It is missing if the first start was killed.
    read_record(workdir)
  return files.read_sealed(path, "the run's config")


def read_config(workdir: str | os.PathLike) -> Config:
  """Returns the settings of a run, or of a copy of its `config.json` whose name ends in `.json`."""
  workdir = files.as_path(workdir)
  if workdir.suffix == '.json' and not workdir.is_dir():
    return Config.from_dict(files.read_sealed(workdir, "a run's config"))
  return Config.from_dict(read_config_dict(workdir))


def read_record(workdir: str | os.PathLike) -> dict:
  """Returns `run.json`; raises `UserError` if it is corrupt, or the run has a different format.

  Its `data` has the SHA-256 of each vocabulary and each corpus, by name.
  """
  path = Path(workdir) / RUN
  record = files.read_sealed(path, 'the record of the run')
  if record.get('format') != FORMAT:
    raise UserError(
      f'{path} should have the format {FORMAT}, which this version reads; got '
      f'{short_repr(record.get("format"))}; train the run again, or use the version that '
      f'wrote it (its commit is {short_repr(record.get("commit"))})'
    )
  return record


def has_begun(workdir: Path) -> bool:
  """Returns whether a run has begun in the directory: `run.json`, written last, exists.

  Raises `UserError` if there are checkpoints without `run.json`.
  """
  begun = (workdir / RUN).exists()
  if not begun and (workdir / CHECKPOINTS).exists():
    raise UserError(
      f'{workdir / RUN} is missing, though the run has checkpoints; restore it from a copy'
    )
  return begun


def check_path(directory: Path):
  """Raises `UserError` if Orbax or TensorStore would misread a directory's full path."""
  path = f'{os.path.abspath(directory)}/'
  if match := re.search(r'[\\*?[]|gs:/|\A/gs/', path):
    raise UserError(
      f'the path of checkpoints must not contain {match[0]}, which would be read as another path; '
      f'got {path[:-1]}; rename the folder, or choose a different one'
    )


def is_unused(workdir: Path) -> bool:
  """Returns whether a directory holds only files of a process that was killed during start-up."""
  return all(
    path.name == LOCK or files.is_temporary(path) for path in workdir.iterdir()
  )


def commit() -> str:
  """Returns the commit of this code, with `+` if files differ; `unknown` if it is not recorded."""
  # The package may be installed inside the repository of another project.
  if not (TOP / '.git').exists():
    return installed_commit()
  # Without tags, `describe` prints the commit.
  command = 'git describe --always --abbrev=40 --exclude=* --dirty=+'
  try:
    result = subprocess.run(
      command.split(), cwd=TOP, capture_output=True, text=True, check=True
    )
  except (OSError, subprocess.CalledProcessError):
    return 'unknown'
  return result.stdout.strip()


def versions() -> dict:
  """Returns the versions of Python and of the packages that affect a run's numbers."""
  packages = {}
  for name in _PACKAGES:
    # TFDS may be absent, since text files do not need it.
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      packages[name] = importlib.metadata.version(name)
  return {'python': platform.python_version(), 'packages': packages}
