"""Measures this project on an accelerator in a few minutes, and trains runs there.

  python benchmarks/accelerator.py --out=FILE.json              # nine minutes; rerun to resume
  python benchmarks/accelerator.py --out=FILE.json --size=toy   # the same on any CPU, as a test
  python benchmarks/accelerator.py --tables=FILE.json           # the tables of README.md
  python benchmarks/accelerator.py --train=FOLDER --out=OUT     # runs that pack_runs.py has packed

Each section has a separate process and a time limit, and its results are written to FILE.json as
soon as it finishes. The next call skips finished sections, and measures the sections for which
there was no time. A failed section is recorded with its error; --retry measures it again. Required
packages: jax, flax, optax, absl and numpy; SentencePiece for the section `data`; PyTorch for the
PyTorch rows. --train needs the packages of train.py except ml-collections and TFDS.
"""

import importlib
import os
import sys
import time
from pathlib import Path

from absl import app, flags, logging

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from accelerator_parts import subprocesses
from accelerator_parts.results_file import ResultsFile, failures, read
from accelerator_parts.sections import Section, sections
from accelerator_parts.tables import tables

from transformer.errors import StoppedBySignal, UserError
from transformer.runs.run_directory import commit
from transformer.system.machine import enable_compilation_cache

_OUT = flags.DEFINE_string('out', None, 'The JSON file; with --train, a folder.')
_SIZE = flags.DEFINE_enum('size', 'full', ['full', 'toy'], 'What to measure.')
_MINUTES = flags.DEFINE_float('minutes', 9, 'The maximum duration of this call.')
_ONLY = flags.DEFINE_string(
  'only', '', 'Measure only sections whose names begin with this.'
)
_RETRY = flags.DEFINE_bool('retry', False, 'Measure failed sections again.')
_COMMIT = flags.DEFINE_string(
  'commit', None, 'The commit of this code, if git is not available.'
)
_TABLES = flags.DEFINE_string('tables', None, 'Print the tables of this JSON file.')
_TRAIN = flags.DEFINE_string(
  'train', None, 'Train the runs in this folder, which pack_runs.py wrote.'
)
_SECTION = flags.DEFINE_string(
  'section',
  None,
  'Measure this section in this process; with --train, train this run in this process.',
)
_ROWS = flags.DEFINE_string(
  'rows', None, 'The file to which --section appends rows of JSON.'
)


def measure_all(deadline: float):
  """Measures the sections that are not in --out yet and fit into the time left.

  Args:
    deadline: the end of this call, as a value of `time.monotonic`.
  """
  results_file = ResultsFile(_OUT.value, _SIZE.value)
  about = subprocesses.describe(_COMMIT.value or commit())
  print(', '.join(about.values()), flush=True)
  left = []
  for section in sections(_SIZE.value):
    if not section.name.startswith(_ONLY.value) or results_file.is_done(
      section.name, _RETRY.value
    ):
      continue
    remaining = deadline - time.monotonic()
    if remaining < section.seconds:
      left.append(section.name)
      continue
    command = subprocesses.python(
      __file__, f'--section={section.name}', f'--size={_SIZE.value}'
    )
    found = subprocesses.measure(command, min(remaining, 2 * section.seconds))
    results_file.add(section.name, **found, **about)
    bad = f', {count} failures' if (count := failures(found)) else ''
    print(
      f'{section.name}: {len(found["rows"])} rows{bad} in {found["seconds"]:.0f} s'
      + (f'; {found["error"]}' if found['error'] else ''),
      flush=True,
    )
  if left:
    print(f'left for another call: {"; ".join(left)}')


def measure_here(section: Section):
  """Measures a section in this process."""
  enable_compilation_cache(os.environ)
  # Leaves some memory for other libraries than JAX, and the whole device for PyTorch.
  os.environ.setdefault('XLA_PYTHON_CLIENT_MEM_FRACTION', '0.9')
  if section.module == 'pytorch':
    os.environ['JAX_PLATFORMS'] = 'cpu'
  module = importlib.import_module(f'accelerator_parts.{section.module}')
  subprocesses.write_rows(_ROWS.value, module.measure(**section.arguments))


def main(argv):
  """Measures, prints tables or trains, as the flags say."""
  deadline = time.monotonic() + 60 * _MINUTES.value
  logging.set_verbosity(logging.WARNING)  # Orbax logs much.
  if len(argv) > 1:
    raise UserError(f'unexpected argument {argv[1]!r}; flags begin with --')
  if _TABLES.value:
    print(tables(read(_TABLES.value)))
  elif _TRAIN.value and _SECTION.value:
    from accelerator_parts.train_runs import train_here

    train_here(Path(_TRAIN.value), _SECTION.value, Path(_OUT.value))
  elif _SECTION.value:
    measure_here(
      {section.name: section for section in sections(_SIZE.value)}[_SECTION.value]
    )
  elif not _OUT.value:
    raise UserError('--out is missing; pass --out or --tables')
  elif _TRAIN.value:
    from accelerator_parts.train_runs import train_all

    train_all(Path(_TRAIN.value), Path(_OUT.value), deadline, _COMMIT.value or commit())
  else:
    measure_all(deadline)


if __name__ == '__main__':
  try:
    app.run(main)
  except (UserError, StoppedBySignal) as error:
    sys.exit(f'error: {error}')
