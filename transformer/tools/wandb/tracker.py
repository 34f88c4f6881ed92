"""Logs a run to Weights & Biases: `train.trackers=transformer.tools.wandb.tracker:WandB`.

The environment variables of wandb, such as WANDB_PROJECT and WANDB_MODE, set destination and mode.
The run's id, and the last step sent of each metric, are stored in `wandb.json`.
"""

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer import files
from transformer.config import Config
from transformer.errors import StoppedBySignal, UserError
from transformer.experiment.trackers import Sample
from transformer.tools._requirements import requirements
from transformer.tools._tracker_id import identity, known_run, warn_about_skipped_steps

# wandb reads these on import. Without the second, a kill would lose 15 seconds of an offline run.
os.environ.setdefault('WANDB_ERROR_REPORTING', 'false')
os.environ.setdefault('WANDB__TRANSACTION_LOG_FLUSH_INTERVAL', '1')
with requirements(__file__):
  import wandb

# Maximum time that training waits for the network, at the start and at the end.
_INIT_SECONDS = 30.0
_FINISH_SECONDS = 5.0


class WandB:
  """A Weights & Biases run, resumed when the training run resumes.

  The metrics of each step are a row of its history, with their `step`.
  """

  def __init__(self, config: Config, workdir: Path, step: int):
    """Starts a Weights & Biases run, or resumes the one in `wandb.json`."""
    self._path = workdir / 'wandb.json'
    self._sent: dict[str, Any] = {
      'id': uuid.uuid4().hex[:12],
      'steps': {},
      **known_run(self._path, 'id'),
      **identity(workdir),
    }
    warn_about_skipped_steps(
      self._path, step, max(self._sent['steps'].values(), default=0)
    )
    try:
      self._run = wandb.init(
        id=self._sent['id'],
        resume='allow',
        config=config.to_dict(),
        allow_val_change=True,
        name=os.environ.get('WANDB_NAME', '/'.join(workdir.parts[-2:])),
        dir=os.environ.get('WANDB_DIR', workdir),
        settings=wandb.Settings(
          console=os.environ.get('WANDB_CONSOLE', 'off'),
          init_timeout=_INIT_SECONDS,
          finish_timeout=_FINISH_SECONDS,
        ),
      )
    except (
      wandb.errors.UsageError,
      KeyboardInterrupt,
    ) as error:  # At the prompt for a key.
      raise UserError(
        f'Weights & Biases: {error}; to log in: wandb login; to log only to files: '
        'WANDB_MODE=offline'
      ) from error
    self._run.define_metric('*', step_metric='step')
    files.write_json(self._path, self._sent)

  def log_metrics(self, step: int, values: Mapping[str, float]):
    """Logs metrics of a step, except those that were logged before a resume."""
    steps = self._sent['steps']
    new = {name: value for name, value in values.items() if steps.get(name, -1) < step}
    if new:
      self._run.log({'step': step, **new})
      steps |= dict.fromkeys(new, step)
      files.write_json(self._path, self._sent)

  def log_samples(self, step: int, samples: Sequence[Sample]):
    """Logs the samples as a table."""
    table = wandb.Table(
      columns=list(Sample._fields), data=[list(sample) for sample in samples]
    )
    self.log_metrics(step, {'valid/samples': table})

  def close(self, error: BaseException | None):
    """Ends the run, with status finished, preempted or failed."""
    if isinstance(error, StoppedBySignal):
      self._run.mark_preempting()
    self._run.finish(exit_code=0 if error is None else 1)
