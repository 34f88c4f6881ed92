"""Runs a measurement in a process that starts and compiles like `train.py` and `eval.py`.

  python -m tests.full_size.child SUBJECT FOLDER

SUBJECT is a module of this folder with a function `measure(folder)`, whose result is printed as
JSON. FOLDER is an empty folder for its files.
"""

import importlib
import json
from pathlib import Path

from transformer.system import command_line


def main(argv):
  """Imports the subject and JAX, after `command_line` has set JAX's options."""
  _, subject, folder = argv
  print(
    json.dumps(
      importlib.import_module(f'tests.full_size.{subject}').measure(Path(folder))
    )
  )


if __name__ == '__main__':
  command_line.run(main, takes_arguments=True)
