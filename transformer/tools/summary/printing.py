"""Prints the summary of a job; also called by `train.py --check`."""

import json
from pathlib import Path

import jax

from transformer.config import Config
from transformer.experiment.preparation import PreparedRun
from transformer.tools.summary.job import describe
from transformer.tools.summary.report import as_text, summarize


def print_summary(
  config: Config,
  workdir: Path,
  devices: int | None = None,
  prepared: PreparedRun | None = None,
  as_json: bool = False,
  chip: str | None = None,
):
  """Prints the summary of a job to standard output, as text or as one JSON object.

  Without `prepared`, for example if the files are on another machine, the dataset is unknown. No
  device of this machine is used. `chip`: as in `summarize`.
  """
  jax.config.update('jax_platforms', 'cpu')
  summary = summarize(describe(config, devices, prepared), workdir, chip)
  print(json.dumps(summary) if as_json else '\n'.join(as_text(summary)))
