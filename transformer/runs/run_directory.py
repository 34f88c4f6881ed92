"""The files in a run's directory: their names, their content, and which of them are there."""

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from transformer import files
from transformer.config import Config
from transformer.data.config import SEPARATE_VOCABULARIES, SHARED_VOCABULARY
from transformer.errors import UserError
from transformer.runs.lock import LOCK
from transformer.system.installation import installed_commit
from transformer.system.machine import usable_cores

CONFIG, RUN, METRICS, CHECKPOINTS, EVALUATIONS = (
    'config.json', 'run.json', 'metrics.jsonl', 'checkpoints', 'eval')
_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy', 'sentencepiece',
             'sacrebleu', 'tensorflow-datasets')
# An empty part of a checkpoint, the mark of a step that training has not finished: a signal came
# first, and the step may lack its evaluation.
UNFINISHED = 'unfinished'
# The key in `run.json` of a run that consists of weights alone.
WEIGHTS_ALONE = 'weights_of_steps'


def read_config(workdir: str | os.PathLike) -> dict[str, Any] | None:
  """Reads a run's `config.json` as nested dicts; returns None if the directory holds no run.

  Raises:
    UserError: the file is damaged, or was edited.
  """
  path = Path(workdir) / CONFIG
  return files.read_sealed(path, 'the run\'s config') if path.exists() else None


def read_settings(workdir: str | os.PathLike) -> Config:
  """Returns the settings of a run.

  Raises:
    UserError: the directory holds no run, or its `config.json` is damaged.
  """
  workdir = Path(workdir).expanduser()
  settings = read_config(workdir)
  if settings is None:
    raise UserError(f'{workdir} holds no run: there is no {CONFIG} in it')
  return Config.from_saved(settings)


def record_files(workdir: str | os.PathLike) -> list[Path]:
  """Returns the paths of the files that describe a run; a vocabulary has some of its names."""
  return [Path(workdir, name) for name in (
      CONFIG, RUN, *SHARED_VOCABULARY, *SEPARATE_VOCABULARIES)]


def read_fingerprints(workdir: str | os.PathLike) -> dict[str, str]:
  """Reads the SHA-256 of each vocabulary and of every corpus, by name, from `run.json`.

  Raises:
    UserError: the file is missing or damaged.
  """
  path = Path(workdir) / RUN
  found = files.read_sealed(path, 'the run\'s data fingerprints').get('data')
  vocabularies = [found.get(name.removesuffix('.model')) for name in (
      *SHARED_VOCABULARY, *SEPARATE_VOCABULARIES)] if isinstance(found, dict) else []
  if {type(each) for each in vocabularies} != {str, type(None)}:
    raise UserError(f'{path} should hold the run\'s data fingerprints; it has none; restore it '
                    f'from a copy')
  return found


def has_begun(workdir: str | os.PathLike) -> bool:
  """Returns whether a run has begun in the directory; its `run.json` is written last.

  Raises:
    UserError: `run.json` is missing, though there are checkpoints.
  """
  workdir = Path(workdir)
  begun = (workdir / RUN).exists()
  if not begun and (workdir / CHECKPOINTS).exists():
    raise UserError(f'{workdir / RUN} is missing, though the run has checkpoints; restore it from '
                    f'a copy')
  return begun


def describe(fingerprints: Mapping[str, str], counts: Mapping[str, Mapping[str, int]],
             parameters: int, flops_per_update: float, reproducible: bool,
             origin: Mapping[str, Any] | None = None,
             frozen: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
  """Returns the content of `run.json`: what produced the run's numbers.

  Args:
    fingerprints: SHA-256 of each vocabulary and of every corpus, by name.
    counts: numbers of pairs that encoding kept, dropped and cut, by corpus.
    origin: identifies the parameters that the run starts from; None if they are random.
    frozen: identifies the frozen arrays of the objective.

  Returns:
    JSON data: that of `_session` for this process, and the arguments. `add_session` fills
    `resumed` when other processes start the run again.
  """
  return {
      **_session(reproducible),
      'parameters': parameters,
      'flops_per_update': flops_per_update,
      'data': dict(fingerprints),
      'counts': {name: dict(each) for name, each in counts.items()},
      'origin': origin and dict(origin),
      'frozen': list(map(dict, frozen)),
      'resumed': [],
  }


def describe_weights(fingerprints: Mapping[str, str], parameters: int, reproducible: bool,
                     steps: list[int]) -> dict[str, Any]:
  """Returns the content of `run.json` for a run that consists of weights alone.

  Args:
    steps: the checkpoints that the weights come from.
  """
  about = describe(fingerprints, {}, parameters, 0.0, reproducible)
  about.pop('flops_per_update')
  return {**about, WEIGHTS_ALONE: steps}


def add_session(workdir: str | os.PathLike, reproducible: bool,
                changes: Mapping[str, Mapping[str, Any]], trains: bool = True,
                own: Mapping[str, str] = types.MappingProxyType({})):
  """Records in `run.json` that this process starts the run again.

  Warns if the process that trained before had another number of CPU cores, or another module of
  one's own.

  Args:
    changes: the settings that changed, by dotted name.
    trains: whether the run goes on; it may have made its last step.
    own: the digest of each of `Config.own_code`.

  Raises:
    UserError: the run would go on with other values of the switches that `run.json` records.
  """
  from transformer.system.jax_backend import check_same_switches  # It imports JAX.

  path = Path(workdir) / RUN
  about = files.read_sealed(path, 'the record of the run')
  session = _session(reproducible) | {'own_code': dict(own)}
  last = sessions_that_train(about)[-1]
  before, now = last['devices'], session['devices']
  if trains:
    check_same_switches(last.get('jax', {}))
  if trains and now['platform'] == 'cpu' and before['cpu_cores'] != now['cpu_cores']:
    logging.warning('the run goes on with %d CPU cores, and had %d before: the order of additions '
                    'changes, so numbers differ by rounding from an uninterrupted run',
                    now['cpu_cores'], before['cpu_cores'])
  for spec, digest in own.items() if trains else ():
    if last.get('own_code', {}).get(spec, digest) != digest:
      logging.warning('the module of %s has changed since the run trained last, so the run may '
                      'differ from an uninterrupted one', spec)
  about['resumed'].append({**session, 'changed': dict(changes), 'trains': trains})
  files.write_sealed(path, about)


def sessions_that_train(about: Mapping[str, Any]) -> list[Mapping[str, Any]]:
  """Returns the sessions in the content of `run.json` that made updates, in their order."""
  return [about, *(each for each in about['resumed'] if each.get('trains', True))]


def recorded_cost(workdir: str | os.PathLike) -> dict[str, Any] | None:
  """Returns what `run.json` says that the run has cost; None if it says nothing."""
  return files.read_sealed(Path(workdir) / RUN, 'the record of the run').get('cost')


def add_cost(workdir: str | os.PathLike, cost: Mapping[str, Any]):
  """Records in `run.json` what the run has cost; replaces what it recorded before."""
  path = Path(workdir) / RUN
  files.write_sealed(path, files.read_sealed(path, 'the record of the run') | {'cost': dict(cost)})


def _session(reproducible: bool) -> dict[str, Any]:
  """Returns the time, command, commit, packages and devices of this process."""
  import jax  # Imported here so that commands can read a directory without a device.

  from transformer.system.jax_backend import recorded_switches

  devices = jax.devices()
  return {
      'started': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
      'command': [os.path.basename(sys.argv[0]), *sys.argv[1:]],
      'commit': commit(),
      'python': platform.python_version(),
      'packages': _versions(),
      'devices': {'platform': devices[0].platform, 'kind': devices[0].device_kind,
                  'count': len(devices), 'processes': jax.process_count(),
                  'cpu_cores': usable_cores(), 'machine': platform.machine()},
      'reproducible': reproducible,
      'xla_flags': os.environ.get('XLA_FLAGS', '').split(),
      'jax': recorded_switches(),
  }


def _versions() -> dict[str, str]:
  """Returns the versions of the packages that are installed; text files need no TFDS."""
  versions = {}
  for name in _PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      versions[name] = importlib.metadata.version(name)
  return versions


def split_runs(text: str) -> list[str]:
  """Returns the runs in a text that has commas between them.

  A run's own path may have commas. So the first run is the longest beginning that is a directory,
  perhaps with `:SETTINGS` at its end, and so on.
  """
  runs, parts = [], text.split(',')
  while parts:
    beginnings = [','.join(parts[:count]) for count in range(len(parts), 0, -1)]
    run = next((name for name in beginnings for path in (name, name.rpartition(':')[0])
                if path and Path(path).expanduser().is_dir()), parts[0])
    runs.append(run)
    del parts[:1 + run.count(',')]
  return runs


def check_path(directory: str | os.PathLike):
  """Refuses a directory whose full path Orbax or TensorStore, which write checkpoints, misread.

  Raises:
    UserError: the path is not Unicode, or has a character of patterns, or looks like a bucket.
  """
  path = f'{os.path.abspath(directory)}/'
  try:
    path.encode()
  except UnicodeEncodeError as error:  # Python has lone surrogates for bytes it cannot decode.
    raise UserError(f'checkpoints must lie under a path that is {sys.getfilesystemencoding()} '
                    f'text here; got {path}; set PYTHONUTF8=1 if the path is UTF-8, '
                    f'or rename the folder') from error
  odd = next((text for text in ('\\', '*', '?', '[', 'gs:/') if text in path), '')
  if odd or path.startswith('/gs/'):
    raise UserError(f'checkpoints must lie under a path without {odd or "/gs/"}, which would be '
                    f'taken for another path; got {path[:-1]}; rename the folder, or choose '
                    f'another')


def holds_nothing(workdir: str | os.PathLike) -> bool:
  """Returns whether a directory holds nothing but files of a process killed during start-up."""
  return all(path.name == LOCK or files.is_unfinished(path)
             for path in Path(workdir).iterdir())


def commit() -> str:
  """Returns the commit of this code, with `+` if files differ; `unknown` if nothing tells it."""
  def git(*arguments: str) -> str:
    return subprocess.run(['git', '-C', str(Path(__file__).parent), *arguments],
                          capture_output=True, text=True, check=True).stdout.strip()
  try:
    # A virtual environment may lie in the repository of another project, which lacks this file.
    git('ls-files', '--error-unmatch', Path(__file__).name)
    return git('rev-parse', 'HEAD') + '+' * bool(git('status', '--porcelain', '-uno'))
  except (OSError, subprocess.CalledProcessError):
    return installed_commit()
