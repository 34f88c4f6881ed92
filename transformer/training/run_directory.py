"""A run's directory and what it says about itself."""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer.errors import UserError

CONFIG, RUN, VOCABULARY, CHECKPOINTS, EVALUATIONS = (
    'config.json', 'run.json', 'vocabulary.model', 'checkpoints', 'eval')
_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'grain', 'numpy',
             'sentencepiece', 'sacrebleu', 'tensorflow-datasets')
# What may differ when a run is resumed: it changes how long the run goes on, what
# it tells and where it runs, and no update that it makes.
_MAY_DIFFER = ('data.dir', 'model.remat', 'train.steps', 'train.log_every', 'train.keep',
               'train.patience', 'decode.beam_size', 'decode.alpha', 'decode.batch_size',
               'decode.sample', 'decode.temperature', 'decode.top_k', 'decode.top_p',
               'mesh.data', 'mesh.fsdp', 'mesh.tensor')


def read_config(workdir: str | os.PathLike) -> dict[str, Any] | None:
  """The nested dicts of a run's `config.json`, or None if the directory holds no run.

  Raises:
    UserError: the file is damaged.
  """
  path = Path(workdir) / CONFIG
  if not path.exists():
    return None
  try:
    config = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError) as error:
    raise UserError(f'{path} should hold the run\'s config and cannot be read: '
                    f'{error}; restore it from a copy') from error
  if not isinstance(config, dict):
    raise UserError(f'{path} should hold the run\'s config as a JSON object; restore it from a '
                    f'copy')
  return config


def check_same_run(workdir: str | os.PathLike, old: Mapping[str, Any], new: Mapping[str, Any]):
  """Refuses to go on with a run under settings that would make it another one.

  Args:
    workdir: the run's directory.
    old: the settings it began with, by dotted name.
    new: the settings it is now given, by dotted name.

  Raises:
    UserError: names every setting that differs and may not.
  """
  may_differ = set(_MAY_DIFFER)
  if new.get('optimizer.schedule') == 'cosine':
    may_differ.discard('train.steps')
  differences = [
      f'{name} was {old.get(name)!r}, is {new.get(name)!r}'
      for name in sorted({*old, *new})
      if name not in may_differ and old.get(name) != new.get(name)]
  if differences:
    raise UserError(f'{workdir} belongs to a run with another configuration: '
                    f'{"; ".join(differences)}; choose another --workdir, or the same settings')


def check_same_data(workdir: str | os.PathLike, fingerprints: Mapping[str, str]):
  """Refuses to go on with a run on data other than it began with.

  Raises:
    UserError: names what has changed.
  """
  path = Path(workdir) / RUN
  try:
    before = json.loads(path.read_text(encoding='utf-8'))['data']
  except (OSError, ValueError, KeyError) as error:
    raise UserError(f'{path} should hold the run\'s data fingerprints and cannot be read: '
                    f'{error!r}') from error
  changed = [name for name in {*before, *fingerprints}
             if before.get(name) != fingerprints.get(name)]
  if changed:
    raise UserError(f'{workdir} was trained on other data: {", ".join(sorted(changed))} changed '
                    f'since; choose another --workdir, or restore the data')


def describe(fingerprints: Mapping[str, str], counts: Mapping[str, Mapping[str, int]],
             parameters: int, reproducible: bool) -> dict[str, Any]:
  """What `run.json` holds: where the run's numbers come from.

  Args:
    fingerprints: SHA-256 of the vocabulary and of every corpus, by name.
    counts: what encoding kept, dropped and cut of every corpus.
    parameters: number of parameters.
    reproducible: `train.reproducible`.

  Returns:
    JSON data: what `_session` says of this process, then parameters, data and
    counts; `resumed` will hold a like account of each process that went on.
  """
  return {
      **_session(reproducible),
      'parameters': parameters,
      'data': dict(fingerprints),
      'counts': {name: dict(each) for name, each in counts.items()},
      'resumed': [],
  }


def add_session(workdir: str | os.PathLike, reproducible: bool):
  """Notes in `run.json` that another process goes on with the run."""
  path = Path(workdir) / RUN
  about = json.loads(path.read_text(encoding='utf-8'))
  about['resumed'].append(_session(reproducible))
  write_json(path, about)


def _session(reproducible: bool) -> dict[str, Any]:
  """When, how, with what and on what this process runs."""
  import jax  # Here, so that a command can look at a directory before it needs a device.

  devices = jax.devices()
  return {
      'started': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
      'command': [os.path.basename(sys.argv[0]), *sys.argv[1:]],
      'commit': commit(),
      'python': platform.python_version(),
      'packages': {name: importlib.metadata.version(name) for name in _PACKAGES},
      'devices': {'platform': devices[0].platform, 'kind': devices[0].device_kind,
                  'count': len(devices), 'processes': jax.process_count(),
                  'cpu_cores': os.cpu_count(), 'machine': platform.machine()},
      'reproducible': reproducible,
      'xla_flags': os.environ.get('XLA_FLAGS', '').split(),
  }


def write_json(path: Path, value: Any):
  """Writes indented JSON so that the file is whole or as it was."""
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'{path.name}.{os.getpid()}.tmp')
  temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + '\n', encoding='utf-8')
  os.replace(temporary, path)


def commit() -> str:
  """The commit of this code, `+` where files differ from it; `unknown` outside a checkout."""
  def git(*arguments: str) -> str:
    return subprocess.run(['git', '-C', str(Path(__file__).parent), *arguments],
                          capture_output=True, text=True, check=True).stdout.strip()
  try:
    return git('rev-parse', 'HEAD') + '+' * bool(git('status', '--porcelain', '-uno'))
  except (OSError, subprocess.CalledProcessError):
    return 'unknown'
