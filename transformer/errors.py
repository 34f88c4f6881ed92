"""The one exception that a person is meant to read."""


class UserError(ValueError):
  """Something that the user can mend: a config, a file, a directory.

  The message is a single line that says what was wanted, what came, and what
  to do. `train.py` and `eval.py` print it and exit with status 1, without a
  traceback; every other exception is a bug and keeps its traceback.
  """
