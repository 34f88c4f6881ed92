"""A run's directory and what it says about itself."""

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import logging

from transformer import files
from transformer.errors import UserError
from transformer.training.lock import LOCK

CONFIG, RUN, VOCABULARY, AUDIT, METRICS, CURVES, CHECKPOINTS, INTERRUPTED, EVALUATIONS = (
    'config.json', 'run.json', 'vocabulary.model', 'audit.json', 'metrics.jsonl', 'curves.svg',
    'checkpoints', 'interrupted', 'eval')
_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'grain', 'numpy',
             'sentencepiece', 'sacrebleu', 'tensorflow-datasets')
# What `run.json` says of a run that was not trained in its directory.
_WEIGHTS_ALONE = 'weights_of_steps'
# What may differ when a run is resumed: it changes how long the run goes on, what
# it tells and where it runs, and no update that it makes.
_MAY_DIFFER = ('data.dir', 'model.remat', 'train.steps', 'train.log_every', 'train.eval_every',
               'train.checkpoint_every', 'train.keep', 'train.patience', 'train.skip_nonfinite',
               'train.fit_memory', 'train.grace_seconds', 'decode.beam_size', 'decode.alpha',
               'decode.batch_size', 'decode.sample', 'decode.temperature', 'decode.top_k',
               'decode.top_p', 'mesh.data', 'mesh.fsdp', 'mesh.tensor')


def read_config(workdir: str | os.PathLike) -> dict[str, Any] | None:
  """The nested dicts of a run's `config.json`, or None if the directory holds no run.

  Raises:
    UserError: the file is damaged, or was edited.
  """
  path = Path(workdir) / CONFIG
  return files.read_sealed(path, 'the run\'s config') if path.exists() else None


def check_same_run(workdir: str | os.PathLike, old: Mapping[str, Any],
                   new: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
  """Refuses to go on with a run under settings that would make it another one.

  Args:
    workdir: the run's directory.
    old: the settings it began with, by dotted name.
    new: the settings it is now given, by dotted name.

  Returns:
    What differs and may, by dotted name: `from` and `to`.

  Raises:
    UserError: names every setting that differs and may not.
  """
  may_differ = set(_MAY_DIFFER)
  if new.get('optimizer.schedule') == 'cosine':
    may_differ.discard('train.steps')
  if not new.get('train.skip_nonfinite'):
    may_differ.discard('train.skip_nonfinite')  # What was skipped must go on being counted.
  changes = {name: {'from': old.get(name), 'to': new.get(name)} for name in sorted({*old, *new})
             if old.get(name) != new.get(name)}
  differences = [f'{name} was {change["from"]!r}, is {change["to"]!r}'
                 for name, change in changes.items() if name not in may_differ]
  if differences:
    raise UserError(f'{workdir} belongs to a run with another configuration: '
                    f'{"; ".join(differences)}; choose another --workdir, or the same settings')
  return changes


def read_fingerprints(workdir: str | os.PathLike) -> dict[str, str]:
  """SHA-256 of the run's vocabulary and of every corpus, by name, as `run.json` has them.

  Raises:
    UserError: the file is missing or damaged.
  """
  path = Path(workdir) / RUN
  found = files.read_sealed(path, 'the run\'s data fingerprints').get('data')
  if not isinstance(found, dict) or not isinstance(found.get('vocabulary'), str):
    raise UserError(f'{path} should hold the run\'s data fingerprints; it has none; restore it '
                    f'from a copy')
  return found


def has_begun(workdir: str | os.PathLike) -> bool:
  """Whether all that makes a directory a run was written, of which `run.json` comes last.

  Raises:
    UserError: `run.json` is gone, since there are checkpoints.
  """
  workdir = Path(workdir)
  begun = (workdir / RUN).exists()
  if not begun and (workdir / CHECKPOINTS).exists():
    raise UserError(f'{workdir / RUN} is missing, though the run has checkpoints; restore it from '
                    f'a copy')
  return begun


def check_same_data(workdir: str | os.PathLike, fingerprints: Mapping[str, str]):
  """Refuses to go on with a run on data other than it began with.

  Raises:
    UserError: names what has changed.
  """
  before = read_fingerprints(workdir)
  changed = [name for name in {*before, *fingerprints}
             if before.get(name) != fingerprints.get(name)]
  if changed:
    raise UserError(f'{workdir} was trained on other data: {", ".join(sorted(changed))} changed '
                    f'since; choose another --workdir, or restore the data')


def check_same_origin(workdir: str | os.PathLike, origin: Mapping[str, Any]):
  """Refuses to begin anew from parameters other than a run began with.

  Raises:
    UserError: they are others.
  """
  began = files.read_sealed(Path(workdir) / RUN, 'what is known of the run').get('origin')
  if began != origin:
    steps = began['steps'] if isinstance(began, dict) and 'steps' in began else 'unknown'
    raise UserError(f'{workdir} began from step {steps} of train.init_from, whose best is of step '
                    f'{origin["steps"]} by now, or is another; choose another --workdir to start '
                    f'from that')


def describe(fingerprints: Mapping[str, str], counts: Mapping[str, Mapping[str, int]],
             parameters: int, reproducible: bool,
             origin: Mapping[str, Any] | None) -> dict[str, Any]:
  """What `run.json` holds: where the run's numbers come from.

  Args:
    fingerprints: SHA-256 of the vocabulary and of every corpus, by name.
    counts: what encoding kept, dropped and cut of every corpus.
    parameters: number of parameters.
    reproducible: `train.reproducible`.
    origin: what tells the parameters that the run starts from; None if they are random.

  Returns:
    JSON data: what `_session` says of this process, then parameters, data, counts
    and origin; `resumed` will hold a like account of each process that went on, and
    which settings `changed` then.
  """
  return {
      **_session(reproducible),
      'parameters': parameters,
      'data': dict(fingerprints),
      'counts': {name: dict(each) for name, each in counts.items()},
      'origin': origin and dict(origin),
      'resumed': [],
  }


def describe_weights(vocabulary: str, parameters: int, reproducible: bool,
                     steps: list[int]) -> dict[str, Any]:
  """What `run.json` holds of a run that is made of weights alone.

  Args:
    vocabulary: SHA-256 of the vocabulary.
    parameters: number of parameters.
    reproducible: `train.reproducible`.
    steps: the checkpoints that the weights come from.
  """
  return {**describe({'vocabulary': vocabulary}, {}, parameters, reproducible, None),
          _WEIGHTS_ALONE: steps}


def check_goes_on(workdir: str | os.PathLike):
  """Refuses to train on from weights alone, since the optimizer's state is not there.

  Raises:
    UserError: says how to start from them.
  """
  if _WEIGHTS_ALONE in files.read_sealed(Path(workdir) / RUN, 'the run\'s data fingerprints'):
    raise UserError(f'{workdir} holds weights alone, with which a run cannot go on; start another '
                    f'from them: --workdir=NEW --config.train.init_from={workdir}')


def add_session(workdir: str | os.PathLike, reproducible: bool,
                changes: Mapping[str, Mapping[str, Any]]):
  """Notes in `run.json` that another process goes on with the run, and with which changes.

  Warns where a CPU has another number of cores than the process before had.
  """
  path = Path(workdir) / RUN
  about = files.read_sealed(path, 'what is known of the run')
  session = _session(reproducible)
  before, now = (each['devices'] for each in ([about, *about['resumed']][-1], session))
  if now['platform'] == 'cpu' and before['cpu_cores'] != now['cpu_cores']:
    logging.warning('the run goes on with %d CPU cores, and had %d before: it adds in another '
                    'order, so its numbers differ by rounding from those of an uninterrupted run',
                    now['cpu_cores'], before['cpu_cores'])
  about['resumed'].append({**session, 'changed': dict(changes)})
  files.write_sealed(path, about)


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
                  'cpu_cores': usable_cores(), 'machine': platform.machine()},
      'reproducible': reproducible,
      'xla_flags': os.environ.get('XLA_FLAGS', '').split(),
  }


def usable_cores() -> int:
  """The CPU cores that this process may run on, which `taskset` or Slurm may have limited."""
  if hasattr(os, 'sched_getaffinity'):  # Linux.
    return len(os.sched_getaffinity(0))
  return os.cpu_count()


def holds_nothing(workdir: str | os.PathLike) -> bool:
  """Whether a directory holds nothing but what a process leaves that is killed as it starts."""
  return all(path.name in (LOCK, AUDIT) or files.is_unfinished(path)
             for path in Path(workdir).iterdir())


def commit() -> str:
  """The commit of this code, `+` where files differ from it; `unknown` outside a checkout."""
  def git(*arguments: str) -> str:
    return subprocess.run(['git', '-C', str(Path(__file__).parent), *arguments],
                          capture_output=True, text=True, check=True).stdout.strip()
  try:
    return git('rev-parse', 'HEAD') + '+' * bool(git('status', '--porcelain', '-uno'))
  except (OSError, subprocess.CalledProcessError):
    return 'unknown'
