"""The time of a training step on a chip: from a measured throughput, or an estimate.

chips.json lists the chips. `memory` is in bytes: 75% of a GPU's memory, the fraction that JAX
allocates, and all of a TPU's. `rates` has FLOP/s, computed from the target tokens per second of
trained models, or assumed; each has its source.
"""

import json
from pathlib import Path
from typing import Any

from transformer.tools.summary.job import Job

_FILE = Path(__file__).with_name('chips.json')
CHIPS: dict[str, dict[str, Any]] = json.loads(_FILE.read_text('utf-8'))


def step_time(job: Job, chip: str) -> tuple[float | None, str]:
  """Returns the seconds of a training step on `job.devices` chips, and the basis of the number.

  The seconds are None if the FLOPs of the model are unknown. The throughput is of the measured
  model with the closest width. The estimate assumes that several devices divide the time evenly,
  and that throughput does not depend on the number of tokens.
  """
  if job.flops is None:
    return None, 'unknown: the model does not report its FLOPs'
  model = job.config.model
  rates = CHIPS[chip]['rates']
  closest = min(
    rates, key=lambda rate: abs(rate['model']['model_dim'] - model.model_dim)
  )
  seconds = job.flops / closest['flops_per_second'] / job.devices
  settings = {name: getattr(model, name) for name in closest['model']}
  is_measured = (
    settings == closest['model']
    and job.devices == 1
    and job.tokens_per_device >= closest['tokens']
    and not job.config.train.objective
  )
  return seconds, f'{"measured" if is_measured else "estimate"}: {closest["source"]}'
