"""Tells Weights & Biases of a run: `train.report=transformer.tools.wandb.reporter:WandB`.

The variables of that library, such as WANDB_PROJECT and WANDB_MODE, say where and how. The run
keeps its id, and what it has sent, in `wandb.json`.
"""

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer import files
from transformer.config import Config
from transformer.errors import Preempted, UserError
from transformer.experiment.reporters import Sample
from transformer.tools._requirements import requirements
from transformer.tools._tracker_id import identity, known_run, warn_of_lines

# It reads these at its import. Without the second, a kill would lose 15 seconds of an offline run.
os.environ.setdefault('WANDB_ERROR_REPORTING', 'false')
os.environ.setdefault('WANDB__TRANSACTION_LOG_FLUSH_INTERVAL', '1')
with requirements(__file__):
  import wandb

# Training, and its end, wait for the network so long.
_INIT_SECONDS = 30.0
_FINISH_SECONDS = 5.0


class WandB:
  """A run of Weights & Biases, which goes on when the run does.

  Each line of metrics is a row of its history with its `step`.
  """

  def __init__(self, config: Config, workdir: Path, step: int):
    """Begins a run, or goes on with that of `wandb.json`."""
    self._path = workdir / 'wandb.json'
    self._sent: dict[str, Any] = {
      'id': uuid.uuid4().hex[:12],
      'steps': {},
      **known_run(self._path, 'id'),
      **identity(workdir),
    }
    warn_of_lines(self._path, step, max(self._sent['steps'].values(), default=0))
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
        f'Weights & Biases: {error}; to log in: wandb login; to write files alone: '
        f'WANDB_MODE=offline'
      ) from error
    self._run.define_metric('*', step_metric='step')
    files.write_json(self._path, self._sent)

  def numbers(self, step: int, values: Mapping[str, float]):
    """Sends a line, but not again what was sent before a resume."""
    steps = self._sent['steps']
    new = {name: value for name, value in values.items() if steps.get(name, -1) < step}
    if new:
      self._run.log({'step': step, **new})
      steps |= dict.fromkeys(new, step)
      files.write_json(self._path, self._sent)

  def samples(self, step: int, samples: Sequence[Sample]):
    """Sends a table."""
    table = wandb.Table(
      columns=list(Sample._fields), data=[list(sample) for sample in samples]
    )
    self.numbers(step, {'valid/samples': table})

  def close(self, error: BaseException | None):
    """Ends the run, which Weights & Biases then shows as finished, preempted or failed."""
    if isinstance(error, Preempted):
      self._run.mark_preempting()
    self._run.finish(exit_code=0 if error is None else 1)
