"""Measures something in a process that is set up, and compiles, as `train.py` and `eval.py` do.

  python -m tests.as_users_run.child SUBJECT FOLDER

SUBJECT is a module of this folder with a function `measure(folder)`; what that returns is printed
as JSON. FOLDER is an empty one to write to.
"""

import importlib
import json
from pathlib import Path

from transformer import command_line


def main(argv):
  """Imports the subject, and with it JAX, only now, when JAX's settings are made."""
  _, subject, folder = argv
  print(json.dumps(importlib.import_module(f'tests.as_users_run.{subject}').measure(Path(folder))))


if __name__ == '__main__':
  command_line.run(main, takes_arguments=True)
