"""Prints the summary of a job; `train.py --check` calls it."""

import json
from pathlib import Path

import jax

from transformer.config import Config
from transformer.experiment.preparation import Preparation
from transformer.tools.summary.job import describe
from transformer.tools.summary.report import as_text, summarize


def print_summary(
  config: Config,
  workdir: Path,
  devices: int | None = None,
  prepared: Preparation | None = None,
  as_json: bool = False,
  chip: str | None = None,
):
  """Prints the summary of a job on standard output, as text or as one JSON object.

  Without `prepared`, as when the files are on other machines, the text is unknown. The devices of
  this machine are not used. `chip` is an argument of `summarize`.
  """
  jax.config.update('jax_platforms', 'cpu')
  summary = summarize(describe(config, devices, prepared), workdir, chip)
  print(json.dumps(summary) if as_json else '\n'.join(as_text(summary)))
