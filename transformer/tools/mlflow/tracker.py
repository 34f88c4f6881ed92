"""Logs a run to MLflow: `train.trackers=transformer.tools.mlflow.tracker:MLflow`.

MLflow's environment variables, such as MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME, set the
destination. The MLflow run id is stored in `mlflow.json`.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformer import files
from transformer.config import Config, flatten
from transformer.errors import StoppedBySignal
from transformer.experiment.trackers import Sample
from transformer.tools._requirements import requirements
from transformer.tools._tracker_id import identity, known_run, warn_about_skipped_steps

# MLflow reads this variable on import.
os.environ.setdefault('MLFLOW_DISABLE_TELEMETRY', 'true')
with requirements(__file__):
  import mlflow


class MLflow:
  """An MLflow run, resumed when the training run resumes; settings are logged as parameters."""

  def __init__(self, config: Config, workdir: Path, step: int):
    """Starts an MLflow run, or resumes the one in `mlflow.json`."""
    path = workdir / 'mlflow.json'
    settings = {}
    for name, value in flatten(config.to_dict()).items():
      settings[name] = str(value)
    self._last: dict[str, int] = {}
    record = known_run(path, 'run')
    if record:
      run = mlflow.start_run(run_id=record['run'])
      self._last = _last_steps(run)
      warn_about_skipped_steps(path, step, max(self._last.values(), default=0))
      _tag_changes(record['settings'], settings)
    else:
      run = mlflow.start_run(run_name='/'.join(workdir.parts[-2:]))
    new_record = {'run': run.info.run_id, 'settings': settings, **identity(workdir)}
    files.write_json(path, new_record)
    logged = run.data.params
    new = {name: value for name, value in settings.items() if name not in logged}
    mlflow.log_params(new)

  def log_metrics(self, step: int, values: Mapping[str, float]):
    """Logs metrics of a step, except those that were logged before a resume."""
    new = {}
    for name, value in values.items():
      # MLflow accepts letters, digits, and these characters.
      accepted = re.sub(r'[^\w./ -]', '_', name)
      if self._last.get(accepted, -1) < step:
        new[accepted] = value
    mlflow.log_metrics(new, step=step, synchronous=True)

  def log_samples(self, step: int, samples: Sequence[Sample]):
    """Writes the samples of a step to a file, replacing an earlier file of this step."""
    mlflow.log_dict([sample._asdict() for sample in samples], f'samples/{step}.json')

  def close(self, error: BaseException | None):
    """Ends the MLflow run, with status finished, killed or failed."""
    status = 'FAILED' if error else 'FINISHED'
    mlflow.end_run('KILLED' if isinstance(error, StoppedBySignal) else status)


def _last_steps(run: mlflow.ActiveRun) -> dict[str, int]:
  """Returns the last logged step of each metric of a run."""
  client = mlflow.MlflowClient()
  last_steps = {}
  for name in run.data.metrics:
    history = client.get_metric_history(run.info.run_id, name)
    last_steps[name] = max(value.step for value in history)
  return last_steps


def _tag_changes(old_settings: Mapping[str, str], settings: Mapping[str, str]):
  """Tags the run with settings that changed on resume, because a parameter cannot be changed.

  `old_settings` has the complete settings; MLflow truncates them.
  """
  for name, value in settings.items():
    if old_settings.get(name, value) != value:
      mlflow.set_tag(f'resumed/{name}', value)
