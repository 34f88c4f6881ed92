"""Traces of the devices during some steps of a run, for TensorBoard and Perfetto."""

import os
from collections.abc import Callable

import jax

from transformer.errors import message_in_one_line


class Tracer:
  """Traces a window of steps, once.

  The trace lies under `FOLDER/plugins/profile/TIME/`, where TensorBoard's profile
  plugin looks for it, with a `perfetto_trace.json.gz` for https://ui.perfetto.dev.
  """

  def __init__(self, folder: str | os.PathLike, window: tuple[int, int] | None,
               say: Callable[[str], None]):
    """Prepares the trace; writes nothing yet.

    Args:
      folder: the folder of TensorBoard's files.
      window: the first and the last step to trace, from 1; None traces nothing.
      say: logs where the trace lies, or why there is none.
    """
    self._folder = folder
    self._window = window
    self._say = say
    self._traced: tuple[int, int] | None = None  # The first and the last step in the trace.
    self._open = False

  def run(self, number: int, step: Callable, *arguments):
    """Calls `step(*arguments)`, which is step `number`, and traces it inside the window.

    A trace that cannot be written is given up: training goes on.
    """
    if self._window is None or not self._window[0] <= number <= self._window[1]:
      return step(*arguments)
    if not self._open:
      jax.block_until_ready(arguments)  # Earlier work is not part of the trace.
      options = jax.profiler.ProfileOptions()
      options.python_tracer_level = 0  # Python's calls would crowd out the devices' work.
      try:
        jax.profiler.start_trace(self._folder, create_perfetto_trace=True,
                                 profiler_options=options)
      except (OSError, RuntimeError) as error:
        self._give_up(error)
        return step(*arguments)
      self._open = True
    self._traced = (self._traced[0] if self._traced else number, number)
    with jax.profiler.StepTraceAnnotation('train', step_num=number):
      results = step(*arguments)
    if number == self._window[1]:
      jax.block_until_ready(results)
      self._stop()
    return results

  def close(self):
    """Writes the trace of a run that ended inside the window, or says that there is none."""
    if self._open:
      self._stop()
    elif self._window is not None and self._traced is None:
      self._say(f'nothing was traced: this process ran none of the steps '
                f'{self._window[0]} to {self._window[1]}')

  def _stop(self):
    self._open = False
    try:
      jax.profiler.stop_trace()
    except (OSError, RuntimeError) as error:
      self._give_up(error)
      return
    self._say(f'traced steps {self._traced[0]} to {self._traced[1]}; look at them with: '
              f'tensorboard --logdir={self._folder}, or at https://ui.perfetto.dev')

  def _give_up(self, error: Exception):
    self._window = None
    self._say(f'the trace cannot be written to {self._folder}: {message_in_one_line(error)[:200]}')
