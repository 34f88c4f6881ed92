"""The GPUs of this machine, which launchers split among processes."""

from collections.abc import Mapping
from pathlib import Path

from transformer.system.machine import cuda_visible_devices

_GPUS = Path('/proc/driver/nvidia/gpus')


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
  """Returns the GPUs that a process with this environment can use, by CUDA_VISIBLE_DEVICES name."""
  if environment.get('JAX_PLATFORMS') == 'cpu':
    return []
  if 'CUDA_VISIBLE_DEVICES' in environment:
    return cuda_visible_devices(environment)
  return (
    [str(index) for index, _ in enumerate(_GPUS.iterdir())] if _GPUS.is_dir() else []
  )
