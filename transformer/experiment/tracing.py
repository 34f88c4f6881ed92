"""Traces of the devices during some steps of a run, for TensorBoard and Perfetto."""

import os
from collections.abc import Callable

import jax

from transformer.errors import optional
from transformer.system.progress import say, warn


class Tracer:
  """Traces a window of steps, once.

  The trace lies under `FOLDER/plugins/profile/TIME/`, where TensorBoard's profile
  plugin looks for it, with a `perfetto_trace.json.gz` for https://ui.perfetto.dev.
  """

  def __init__(self, folder: str | os.PathLike, window: tuple[int, int] | None):
    """Takes the folder of TensorBoard's files, and the first and last step; None traces nothing."""
    self._folder = folder
    self._window = range(window[0], window[1] + 1) if window else range(0)
    self._traced: list[int] = []

  def run(self, number: int, step: Callable, *arguments):
    """Calls `step(*arguments)`, which is step `number`, and traces it inside the window."""
    if number not in self._window:
      return step(*arguments)
    if not self._traced:
      jax.block_until_ready(arguments)  # Earlier work is not part of the trace.
      options = jax.profiler.ProfileOptions()
      options.python_tracer_level = 0  # Python's calls would crowd out the devices' work.
      with optional(f'there is no trace in {self._folder}', warn):
        jax.profiler.start_trace(self._folder, create_perfetto_trace=True, profiler_options=options)
    self._traced.append(number)
    with jax.profiler.StepTraceAnnotation('train', step_num=number):
      results = step(*arguments)
    if number == self._window[-1]:
      jax.block_until_ready(results)
      self.close()
    return results

  def close(self):
    """Writes the trace, or says that there is none; the second call does nothing."""
    window, self._window = self._window, range(0)
    if window and not self._traced:
      say(f'nothing was traced: this process ran none of the steps {window[0]} to {window[-1]}')
    elif window:
      with optional(f'there is no whole trace in {self._folder}', warn):
        jax.profiler.stop_trace()
        say(
          f'traced steps {self._traced[0]} to {self._traced[-1]}; look at them with: '
          f'tensorboard --logdir={self._folder}, or at https://ui.perfetto.dev'
        )
