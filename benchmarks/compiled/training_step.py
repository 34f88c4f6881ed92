"""A training step of a config, compiled for devices that this machine may lack."""

import math
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax

from benchmarks.compiled import hlo
from transformer.config import Config
from transformer.errors import UserError
from transformer.model.building import Model, build_model
from transformer.model.flops import train_flops_per_token
from transformer.runs.run_directory import commit
from transformer.training.mesh import make_mesh
from transformer.training.objective import make_objective
from transformer.training.training_setup import make_training_setup


class Compiled(NamedTuple):
  """A training step or a search compiled for devices.

  Attributes:
    facts: settings of the compilation, for JSON.
    memory: bytes per device: `arguments`, `outputs`, `temporaries`, `code` and `total`.
    flops: the model's FLOPs per device, by formula; NaN if the model does not report them.
    xla_flops: FLOPs that XLA counts, the body of a loop once; NaN for GPUs.
    text: the program, see `hlo`; empty if it does not fit into a device's memory.
  """

  facts: dict[str, Any]
  memory: dict[str, int] | None
  flops: float
  xla_flops: float
  text: str


def check(settings: Config):
  """Raises `UserError` if a training step cannot be compiled without reading other runs."""
  if settings.train.objective_runs:
    runs = ', '.join(settings.train.objective_runs)
    raise UserError(
      f'train.objective_runs must be empty here, where no run is read; got {runs}; remove them'
    )


def configure_offline_compilation():
  """Configures JAX to compile for described devices: on the CPU, without a compilation cache."""
  jax.config.update('jax_platforms', 'cpu')
  # The cache could store programs for devices of another machine, but not load them.
  jax.config.update('jax_enable_compilation_cache', False)


def model_of(settings: Config) -> Model:
  """Returns the model of a config, with vocabularies of the configured sizes."""
  data = settings.data
  target = SimpleNamespace(size=data.vocabulary_size)
  source = SimpleNamespace(size=data.source_vocabulary_size or data.vocabulary_size)
  return build_model(settings.model, SimpleNamespace(source=source, target=target))


def compile_training_step(settings: Config, devices: Sequence[Any]) -> Compiled:
  """Compiles the training step of a config, with vocabularies of the configured sizes.

  The result's `memory` is None if the compiler reports that a device has too little memory.
  """
  data = settings.data
  tokens = settings.train.tokens_per_batch
  rows = tokens // data.max_length
  mesh = make_mesh(settings.mesh, settings.rows_per_microbatch, devices)
  # It has cuDNN's attention, unlike a model that is built on a machine without a GPU.
  model = model_of(settings).clone(config=settings.model)
  objective = make_objective(settings, None)
  setup = make_training_setup(settings, model, mesh, objective)
  flops = sum(train_flops_per_token(model, objective.passes) or [math.nan])
  facts = {
    'chips': len(devices),
    'device_kind': devices[0].device_kind,
    'mesh': dict(mesh.shape),
    'rows': rows,
    'max_length': data.max_length,
    'tokens_per_batch': tokens,
    'dtype': settings.model.dtype,
    'commit': commit(),
    'jax': jax.__version__,
  }
  start = time.monotonic()
  try:
    compiled = setup.lower((rows, data.max_length, data.max_length)).compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    compiled = None
  facts['compile_seconds'] = time.monotonic() - start
  flops *= tokens / len(devices)
  if compiled is None:
    return Compiled(facts, None, flops, math.nan, '')
  analysis = compiled.cost_analysis() or {}
  xla_flops = analysis.get('flops', math.nan)
  return Compiled(facts, memory_of(compiled), flops, xla_flops, compiled.as_text())


def memory_of(compiled) -> dict[str, int]:
  """Returns the bytes of a compiled program, see `Compiled.memory`."""
  memory = compiled.memory_analysis()
  parts = {
    'arguments': memory.argument_size_in_bytes,
    # Some outputs reuse the memory of arguments.
    'outputs': memory.output_size_in_bytes - memory.alias_size_in_bytes,
    'temporaries': memory.temp_size_in_bytes,
    'code': memory.generated_code_size_in_bytes,
  }
  return {**parts, 'total': sum(parts.values())}


def totals(collectives: Sequence[hlo.Collective]) -> dict[str, dict[str, float]]:
  """Returns the number and bytes of each kind of collective per step, and the bytes sent."""
  found = {kind: {'count': 0, 'bytes': 0, 'sent': 0.0} for kind in hlo.KINDS}
  for collective in collectives:
    total = found[collective.kind]
    total['count'] += collective.count
    total['bytes'] += collective.count * collective.size
    total['sent'] += collective.sent
  return found


def print_table(rows: Sequence[tuple[str, str]]):
  """Prints names and values in two columns."""
  widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
  for name, value in rows:
    print(f'{name.ljust(widths[0])}  {value.rjust(widths[1])}')


def describe(result: dict[str, Any], name: str) -> str:
  """Returns one line that describes the compilation; `name` is the devices' name."""
  length = result['max_length']
  chips = 'chip' if result['chips'] == 1 else 'chips'
  return (
    f'{name}, {result["chips"]} {chips}: {result["rows"]:,} rows of {length} + {length} tokens, '
    f'{result["dtype"]}, commit {result["commit"][:7]}'
  )


def mesh_of(result: dict[str, Any]) -> str:
  """Returns a mesh as text."""
  axes = [f'{axis} {size}' for axis, size in result['mesh'].items() if size > 1]
  return ' × '.join(axes) or 'one chip'
