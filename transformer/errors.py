"""The exceptions that a person is meant to read."""


class UserError(ValueError):
  """Something that the user can mend: a config, a file, a directory.

  The message is a single line that says what was wanted, what came, and what
  to do. `train.py` and `eval.py` print it and exit with status 1, without a
  traceback; every other exception is a bug and keeps its traceback.
  """


class Preempted(KeyboardInterrupt):
  """A signal asked the run to stop, and it did.

  The message is a single line that says how far the run is. `train.py` prints it
  and exits with a status that tells a scheduler to start the run again. Libraries
  let it pass as they do Ctrl-C.
  """
