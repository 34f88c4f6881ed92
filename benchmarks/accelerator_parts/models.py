"""The models of the sections, and helpers that the sections share."""

import dataclasses

from workload import ON_A_CPU, ON_A_GPU, Workload

from transformer.model.flops import peak_flops, transformer_flops_per_token

_PAIR = 32  # source and target tokens of a sentence pair
_TOY = ON_A_CPU['tiny']


def work_of(model: str, rows: int, length: int) -> Workload:
  """Returns a training step's work for `base`, `big` or `toy`, in bfloat16 with cuDNN attention."""
  if model == 'toy':
    work = _TOY._replace(
      vocabulary_size=300,
      model=dataclasses.replace(
        _TOY.model,
        num_layers=1,
        model_dim=16,
        ff_dim=32,
        num_heads=2,
        dtype='bfloat16',
        attention='cudnn',
      ),
    )
  else:
    work = ON_A_GPU[model]
  return work._replace(
    rows=rows, length=length, sentences_a_row=max(1, length // _PAIR)
  )


def speed(work: Workload, seconds: float, device: str) -> dict[str, float | None]:
  """Returns target tokens per second, and the fraction of the device's peak if that is known.

  Args:
    work: the training step.
    seconds: its time.
    device: the name of the device, as in `peak_flops`.
  """
  tokens = work.rows * work.length / seconds
  peak = peak_flops(device)
  flops = sum(transformer_flops_per_token(work.model, work.vocabulary_size))
  return {'tokens_per_second': tokens, 'utilization': peak and flops * tokens / peak}


def format_error(error: Exception) -> str:
  """Returns an error as one line."""
  return f'{type(error).__name__}: {" ".join(str(error).split())[:300]}'
