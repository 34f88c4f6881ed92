"""The translations of a run's validation sets, in its folder `eval/`."""

import re
from collections.abc import Sequence
from pathlib import Path

from transformer import files
from transformer.runs.run_directory import EVALUATIONS


def write_translations(workdir: Path, key: str, step: int, lines: Sequence[str], keep: int):
  """Writes `valid.STEP.txt`, or `valid.NAME.STEP.txt`, and deletes those of other steps.

  Args:
    key: the validation set, a key of `DataConfig.valid_sets`.
    step: the step of the evaluation. Files of later steps are deleted: they are from before the
      run was resumed.
    keep: how many of the latest files stay.

  Raises:
    UserError: the file cannot be written.
  """
  folder, name = workdir / EVALUATIONS, key.replace('/', '.')
  files.write(folder / f'{name}.{step}.txt', ''.join(f'{line}\n' for line in lines).encode())
  pattern = re.compile(rf'{re.escape(name)}\.(\d+)\.txt')
  steps = {path: int(parts[1]) for path in folder.iterdir()
           if (parts := pattern.fullmatch(path.name))}
  latest = sorted(number for number in steps.values() if number <= step)[-keep:]
  for path, number in steps.items():
    if number not in latest:
      path.unlink()
