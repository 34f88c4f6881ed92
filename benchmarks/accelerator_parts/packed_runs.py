"""Runs that are trained on a machine that returns only a few small files."""

import contextlib
import dataclasses
import io
import json
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer import files
from transformer.config import Config
from transformer.errors import UserError
from transformer.runs.run_directory import read_config

PLAN, DATA, SITE, REPORT = 'plan.json', 'data', 'site', 'report.json'
# Pure-Python packages that training needs and that a machine for benchmarks may lack.
_PACKAGES = ('tensorboardX', 'tqdm', 'sacremoses')
_PART = 15 * 2**20  # bytes of a file
_MOST = 60 * 2**20  # bytes of all files together
_RECORDS = ('run.json', 'metrics.jsonl', 'eval')  # a run's records of its training


class PlannedRun(NamedTuple):
  """A run to train.

  Attributes:
    name: the name of its directory.
    config: its settings; `data.dir` is a folder in the packed folder.
    checkpoint: the checkpoint to return, as for `eval.py`.
    average: number of checkpoints to average, as for `eval.py`.
  """

  name: str
  config: dict[str, Any]
  checkpoint: str
  average: int


def pack(
  folder: Path, config: Config, name: str, seeds: int, checkpoint: str, average: int
):
  """Adds runs to a folder with all that they need: settings, text and small packages.

  Args:
    folder: the folder, which may already contain other runs.
    config: their settings.
    name: their name, to which the seed is appended.
    seeds: number of runs; their seeds count up from the seed of the config.
    checkpoint: as in `PlannedRun`.
    average: as in `PlannedRun`.

  Raises:
    UserError: the config does not use text files or needs other files, or a text file is missing.
  """
  other = {
    'data.vocabulary': config.data.vocabulary,
    'train.init_from': config.train.init_from,
    'train.objective': config.train.objective,
    'data.shared_vocabulary=False': not config.data.shared_vocabulary,
  }
  if asked := [name for name, value in other.items() if value]:
    raise UserError(
      f'{name} cannot be packed, since it has {", ".join(asked)}, whose files are not packed'
    )
  if config.data.source != 'text':
    raise UserError(
      f'only runs on text files can be packed; {name} has data.source={config.data.source}'
    )
  prefixes = (*config.data.train, *config.data.valid_sets.values(), config.data.test)
  for prefix in filter(None, prefixes):  # The test text is optional.
    for language in (config.data.source_language, config.data.target_language):
      path = Path(config.data.dir, f'{prefix}.{language}').expanduser()
      copy = folder / DATA / name / f'{prefix}.{language}'
      if not path.is_file():
        raise UserError(
          f'{path}, which {name} needs, is missing; if the text has moved, pass '
          '--config.data.dir=DIR'
        )
      if not copy.resolve().is_relative_to((folder / DATA / name).resolve()):
        raise UserError(
          f'{prefix}, which {name} needs, is outside {config.data.dir}; pass '
          '--config.data.dir=DIR, a folder that contains all its text'
        )
      copy.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(path, copy)
  for package in _PACKAGES:
    with contextlib.suppress(metadata.PackageNotFoundError):
      _copy_package(package, folder / SITE)
  runs = (
    {run.name: run for run in planned_runs(folder)} if (folder / PLAN).exists() else {}
  )
  for number in range(seeds):
    own = dataclasses.replace(
      config,
      seed=config.seed + number,
      data=dataclasses.replace(config.data, dir=f'{DATA}/{name}'),
    )
    run = PlannedRun(f'{name}-{own.seed}', own.to_dict(), checkpoint, average)
    runs[run.name] = run
  files.write_json(folder / PLAN, [run._asdict() for run in runs.values()])


def _copy_package(name: str, site: Path):
  """Copies an installed package and its metadata."""
  for file in metadata.files(name) or ():
    if '..' not in file.parts and '__pycache__' not in file.parts:
      (site / file).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(file.locate(), site / file)


def planned_runs(folder: Path) -> list[PlannedRun]:
  """Returns the runs of a packed folder, with the paths of their text.

  Raises:
    UserError: the folder is not a packed folder.
  """
  try:
    found = json.loads((folder / PLAN).read_text(encoding='utf-8'))
  except OSError as error:
    raise UserError(
      f'{folder} should hold runs that benchmarks/pack_runs.py has packed; there is no {PLAN} in it'
    ) from error
  return [PlannedRun(**fields) for fields in found]


def collect_weights(
  runs: Sequence[PlannedRun], workdirs: Path, out: Path
) -> dict[str, str]:
  """Writes the weights of trained runs to a few files, within the size limit.

  Weights are rounded to bfloat16. Their exponents, which compress well, are stored separately.

  Args:
    runs: the runs, the most important first.
    workdirs: the folder of their directories.
    out: the folder for the files `runs.000`, `runs.001` and so on.

  Returns:
    The outcome for each run, as text.
  """
  out.mkdir(parents=True, exist_ok=True)
  whole, told = io.BytesIO(), {}
  with tarfile.open(fileobj=whole, mode='w') as archive:
    for run in runs:
      if not (workdirs / run.name / 'checkpoints').is_dir():
        told[run.name] = 'it has no checkpoint'
        continue
      try:
        packed, step = _packed_run(run, workdirs / run.name)
      except UserError as error:
        told[run.name] = str(error)
        continue
      fits = whole.tell() + len(packed) < _MOST
      if fits:
        _add(archive, f'{run.name}.tar.xz', packed)
      told[run.name] = f'weights of step {step}, {len(packed) / 1e6:.1f} MB' + (
        ' brought back' if fits else ' which do not fit'
      )
  content = whole.getvalue()
  parts = {
    f'runs.{number:03}': content[start : start + _PART]
    for number, start in enumerate(range(0, len(content), _PART))
  }
  for name, part in parts.items():
    files.write(out / name, part)
  for old in out.glob('runs.*'):
    if old.name not in parts:
      old.unlink()
  return told


def _packed_run(run: PlannedRun, workdir: Path) -> tuple[bytes, int]:
  """Returns a compressed archive of a run's records and weights, and their latest step."""
  from transformer.runs.loading import load_run

  try:
    found = load_run(workdir, run.checkpoint, run.average)
  except UserError:  # A stopped run may have too few checkpoints.
    found = load_run(workdir, 'latest')
  packed = io.BytesIO()
  with tarfile.open(fileobj=packed, mode='w:xz', preset=1) as archive:
    for name in ('config.json', 'vocabulary.model', *_RECORDS):
      if (workdir / name).exists():
        archive.add(workdir / name, name)
    flat = dict(_flat(found.params))
    about = {
      'steps': found.checkpoint_steps,
      'shapes': {name: leaf.shape for name, leaf in flat.items()},
    }
    _add(archive, 'weights.json', json.dumps(about).encode())
    bits = np.concatenate([_bfloat16(leaf).ravel() for leaf in flat.values()])
    # The sign goes last, so that the first byte is the exponent.
    bits = (bits << 1) | (bits >> 15)
    halves = np.stack([bits >> 8, bits & 255]).astype(np.uint8)
    _add(archive, 'weights', halves.tobytes())
  return packed.getvalue(), found.checkpoint_steps[-1]


def unpack(out: Path, workdirs: Path) -> list[Path]:
  """Creates runs for `eval.py` from the files of `collect_weights`; returns their directories.

  A run's records, such as its metrics, are in the folder `trained/` of its directory.

  Raises:
    UserError: the files are missing, or a directory already exists.
  """
  from transformer.data.vocabulary.vocabulary import Vocabulary
  from transformer.runs.loading import save_run

  parts = sorted(out.glob('runs.*'))
  if not parts:
    raise UserError(f'{out} should hold files runs.000 and so on; it has none')
  made = []
  whole = io.BytesIO(b''.join(part.read_bytes() for part in parts))
  with tarfile.open(fileobj=whole) as archive:
    for member in archive:
      workdir = workdirs / Path(member.name).name.removesuffix('.tar.xz')
      if workdir.exists():
        raise UserError(f'{workdir} exists already; choose a different folder')
      with tarfile.open(fileobj=archive.extractfile(member), mode='r:xz') as run:
        run.extractall(workdir / 'trained', filter='data')
      trained = workdir / 'trained'
      about = json.loads((trained / 'weights.json').read_text(encoding='utf-8'))
      config = read_config(trained)
      save_run(
        workdir,
        config,
        Vocabulary((trained / 'vocabulary.model').read_bytes()),
        _tree(about['shapes'], (trained / 'weights').read_bytes()),
        about['steps'],
      )
      (trained / 'weights').unlink()
      made.append(workdir)
  return made


def _bfloat16(leaf) -> np.ndarray:
  """Returns the bits of float32 numbers, rounded to bfloat16."""
  bits = np.ascontiguousarray(leaf, np.float32).view(np.uint32)
  return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _tree(shapes: dict[str, Sequence[int]], content: bytes) -> dict[str, Any]:
  """Returns the nested dicts of float32 numbers that `_packed_run` flattened."""
  exponents, rest = np.frombuffer(content, np.uint8).reshape(2, -1).astype(np.uint16)
  bits = (exponents << 8) | rest
  numbers = (((bits >> 1) | (bits << 15)).astype(np.uint32) << 16).view(np.float32)
  tree, start = {}, 0
  for name, shape in shapes.items():
    *groups, last = name.split('/')
    inner = tree
    for group in groups:
      inner = inner.setdefault(group, {})
    size = int(np.prod(shape))
    inner[last] = numbers[start : start + size].reshape(shape)
    start += size
  return tree


def _flat(tree: dict[str, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
  """Yields the arrays of nested dicts by names such as `encoder/layer_0/kernel`."""
  for name, value in tree.items():
    if isinstance(value, dict):
      yield from _flat(value, f'{prefix}{name}/')
    else:
      yield f'{prefix}{name}', value


def _add(archive: tarfile.TarFile, name: str, content: bytes):
  """Adds bytes to an archive."""
  about = tarfile.TarInfo(name)
  about.size = len(content)
  archive.addfile(about, io.BytesIO(content))
