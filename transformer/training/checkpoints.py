"""Checkpoints of a run; the one file that knows Orbax."""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from transformer.errors import UserError
from transformer.training.step import TrainState

_METRIC = 'valid/bleu'


def _rank(metrics: dict[str, float]) -> tuple[float, float]:
  """Orders checkpoints by BLEU; of equals the earlier is better."""
  return metrics[_METRIC], -metrics['step']


class Checkpoints:
  """The checkpoints under a directory: the latest few and the best.

  A checkpoint holds the parameters, the rest of the training state, and the
  history that decides on patience and on the best. It is written to a folder of
  another name that is renamed when complete, so a half-written one is never seen.
  """

  def __init__(self, directory: str | os.PathLike, *, keep: int = 1, read_only: bool = False):
    """Opens the directory.

    Args:
      directory: where `STEP/` folders lie; made if it is to be written to.
      keep: how many of the latest checkpoints to keep, beside the best.
      read_only: for those who only look.
    """
    self._directory = Path(directory).absolute()
    policy = ocp.checkpoint_managers
    self._manager = ocp.CheckpointManager(self._directory, options=ocp.CheckpointManagerOptions(
        create=not read_only, read_only=read_only, cleanup_tmp_directories=not read_only,
        preservation_policy=policy.AnyPreservationPolicy([
            policy.LatestN(keep),
            policy.BestN(get_metric_fn=_rank, n=1, keep_checkpoints_without_metrics=False)])))

  def steps(self) -> list[int]:
    """The steps that have a checkpoint, ascending."""
    return sorted(self._manager.all_steps())

  def best_step(self) -> int | None:
    """The step of the best validation BLEU, or None if none was evaluated."""
    scored = [(_rank(metrics), step) for step in self.steps()
              if (metrics := self._manager.metrics(step))]
    return max(scored)[1] if scored else None

  def resolve(self, which: str) -> int:
    """The step that `best`, `latest` or a number stands for.

    Raises:
      UserError: there is no such checkpoint.
    """
    steps = self.steps()
    if not steps:
      raise UserError(f'{self._directory} holds no checkpoint; train the run first')
    if which == 'latest':
      return steps[-1]
    if which == 'best':
      # A run that was stopped before its first evaluation has only a latest.
      best = self.best_step()
      return steps[-1] if best is None else best
    if not which.isdigit() or int(which) not in steps:
      raise UserError(f'checkpoint must be best, latest or one of the steps '
                      f'{", ".join(map(str, steps))}; got {which!r}')
    return int(which)

  def save(self, state: TrainState, history: dict[str, Any], bleu: float | None):
    """Starts to write a checkpoint; returns once the state may be changed again.

    Args:
      state: what to save, at its own step.
      history: JSON data to keep with it.
      bleu: the validation BLEU of these parameters, if they were evaluated.
    """
    step = int(state.step)
    rest = {'step': state.step, 'optimizer': state.optimizer}
    self._manager.save(
        step,
        args=ocp.args.Composite(params=ocp.args.StandardSave(state.params),
                                rest=ocp.args.StandardSave(rest),
                                history=ocp.args.JsonSave(history)),
        metrics=None if bleu is None else {_METRIC: bleu, 'step': step})

  def restore(self, step: int, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """Reads a whole checkpoint.

    Args:
      step: one of `steps()`.
      like: a state of `jax.ShapeDtypeStruct` with the shardings to restore to.

    Returns:
      The state and its history.
    """
    rest = {'step': like.step, 'optimizer': like.optimizer}
    found = self._manager.restore(step, args=ocp.args.Composite(
        params=ocp.args.StandardRestore(like.params), rest=ocp.args.StandardRestore(rest),
        history=ocp.args.JsonRestore()))
    return TrainState(found.rest['step'], found.params, found.rest['optimizer']), found.history

  def restore_params(self, step: int, like):
    """Reads the parameters of a checkpoint, and nothing else of it."""
    return self._manager.restore(
        step, args=ocp.args.Composite(params=ocp.args.StandardRestore(like))).params

  def average_params(self, steps: list[int], like):
    """The mean of several checkpoints' parameters (section 6.1)."""
    total = self.restore_params(steps[0], like)
    for step in steps[1:]:
      total = jax.tree.map(jnp.add, total, self.restore_params(step, like))
    return jax.tree.map(lambda leaf: leaf / len(steps), total)

  def close(self):
    """Waits until everything is written."""
    self._manager.wait_until_finished()
    self._manager.close()
