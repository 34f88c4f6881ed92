"""Traces of the devices during some steps of a run, for TensorBoard and Perfetto."""

import os
from collections.abc import Callable

import jax

from transformer.errors import type_and_message
from transformer.system.progress import say


class Tracer:
  """Traces a window of steps, once; a trace that cannot be written ends no run.

  The trace lies under `FOLDER/plugins/profile/TIME/`, where TensorBoard's profile
  plugin looks for it, with a `perfetto_trace.json.gz` for https://ui.perfetto.dev.
  """

  def __init__(self, folder: str | os.PathLike, window: tuple[int, int] | None):
    """Takes the folder of TensorBoard's files, and the first and last step; None traces nothing."""
    self._folder = folder
    self._window = window
    self._traced: list[int] = []

  def run(self, number: int, step: Callable, *arguments):
    """Calls `step(*arguments)`, which is step `number`, and traces it inside the window."""
    if self._window is None or not self._window[0] <= number <= self._window[1]:
      return step(*arguments)
    if not self._traced:
      jax.block_until_ready(arguments)  # Earlier work is not part of the trace.
      options = jax.profiler.ProfileOptions()
      options.python_tracer_level = 0  # Python's calls would crowd out the devices' work.
      try:
        jax.profiler.start_trace(self._folder, create_perfetto_trace=True,
                                 profiler_options=options)
      except (OSError, RuntimeError) as error:
        self._give_up(error)
        return step(*arguments)
    self._traced.append(number)
    with jax.profiler.StepTraceAnnotation('train', step_num=number):
      results = step(*arguments)
    if number == self._window[1]:
      jax.block_until_ready(results)
      self.close()
    return results

  def close(self):
    """Writes the trace, or says that there is none; the second call does nothing."""
    if self._window is None:
      return
    if not self._traced:
      say(f'nothing was traced: this process ran none of the steps {self._window[0]} to '
          f'{self._window[1]}')
      return
    self._window = None
    try:
      jax.profiler.stop_trace()
    except (OSError, RuntimeError) as error:
      self._give_up(error)
      return
    say(f'traced steps {self._traced[0]} to {self._traced[-1]}; look at them with: '
        f'tensorboard --logdir={self._folder}, or at https://ui.perfetto.dev')

  def _give_up(self, error: Exception):
    self._window = None
    say(f'the trace cannot be written to {self._folder}: {type_and_message(error)[:200]}')
