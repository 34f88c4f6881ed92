"""What `config.optimizer`, `config.train` and `config.mesh` hold."""

import dataclasses

from transformer.errors import UserError

ALGORITHMS = ('adam', 'muon')
SCHEDULES = ('paper', 'inverse_sqrt', 'cosine', 'constant')


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """An optimizer and its learning rate; the defaults are the paper's (section 5.3).

  Attributes:
    algorithm: `adam`; or `muon` (Jordan et al., 2024), for the matrices of attention and
      feed-forward layers: an update in which all directions of a gradient's average have
      about the same size, as large as Adam's would be (Liu et al., 2025, "Muon is
      Scalable for LLM Training"), so that both have one learning rate. Embeddings,
      biases and norms then have Adam with Nesterov's momentum (Dozat, 2016).
    schedule: `paper`, equation 3; `inverse_sqrt`, the same curve given by its
      peak; `cosine`, from the peak to zero at `train.steps`; `constant`. All
      but the first rise linearly to the peak over `warmup_steps`.
    scale: factor on the paper's schedule; the others do not read it.
    peak_learning_rate: highest rate of the other schedules.
    warmup_steps: updates until the rate peaks.
    b1: decay of Adam's mean, β₁.
    b2: decay of Adam's second moment, β₂.
    eps: Adam's ε.
    weight_decay: those matrices lose this, times the learning rate, of themselves in
      every update (Loshchilov and Hutter, 2019, "Decoupled Weight Decay
      Regularization").
    clip_norm: largest global norm of a gradient; 0 does not clip.
    accumulate: how many parts a batch is cut into, one forward and backward
      pass each, to fit into memory. The update is the same but for rounding and for
      dropout, which draws other bits.
  """

  algorithm: str = 'adam'
  schedule: str = 'paper'
  scale: float = 1.0
  peak_learning_rate: float = 7e-4
  warmup_steps: int = 4000
  b1: float = 0.9
  b2: float = 0.98
  eps: float = 1e-9
  weight_decay: float = 0.0
  clip_norm: float = 0.0
  accumulate: int = 1

  def __post_init__(self):
    for name, choices in (('algorithm', ALGORITHMS), ('schedule', SCHEDULES)):
      if getattr(self, name) not in choices:
        raise UserError(f'optimizer.{name} must be one of {", ".join(choices)}; '
                        f'got {getattr(self, name)!r}')
    for name in ('scale', 'peak_learning_rate', 'eps'):
      if not 0 < getattr(self, name) < float('inf'):
        raise UserError(f'optimizer.{name} must be above 0 and finite; got {getattr(self, name)}')
    for name in ('b1', 'b2'):
      if not 0 <= getattr(self, name) < 1:
        raise UserError(f'optimizer.{name} must be at least 0 and below 1; '
                        f'got {getattr(self, name)}')
    if self.warmup_steps < 1:
      raise UserError(f'optimizer.warmup_steps must be at least 1; got {self.warmup_steps}')
    if not 0 <= self.weight_decay < float('inf'):
      raise UserError(f'optimizer.weight_decay must be at least 0 and finite; '
                      f'got {self.weight_decay}')
    if not self.clip_norm >= 0:
      raise UserError(f'optimizer.clip_norm must be at least 0; got {self.clip_norm}')
    if self.accumulate < 1:
      raise UserError(f'optimizer.accumulate must be at least 1; got {self.accumulate}')


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """How long, on how much at a time, and what is done along the way.

  Attributes:
    steps: updates in the run.
    tokens_per_batch: target positions in a batch, over all devices.
    label_smoothing: ε of section 5.4.
    r_drop: α of R-Drop (Liang et al., 2021, "R-Drop: Regularized Dropout for Neural
      Networks", which takes 5 for translation): every sentence goes through the
      model twice, with dropouts of their own, and what the passes predict is drawn
      together. An update takes about twice the time. 0 is without.
    ema_decay: decay of an exponential moving average of the parameters (Polyak and
      Juditsky, 1992), which is then what is evaluated and translated with, such as
      0.999; 0 keeps none.
    log_every: updates between two lines of metrics.
    eval_every: updates between two evaluations on the validation split.
    checkpoint_every: updates between two checkpoints; an evaluation that is
      better than all before it saves one as well.
    keep: how many of the latest checkpoints are kept, beside the best.
    patience: evaluations in a row that are no better than the best before them,
      after which the run stops; 0 never stops early. The better evaluation has the
      higher validation BLEU or, where BLEU is equal or below 1, the lower validation
      loss.
    init_from: directory of a run whose best weights, and vocabulary, this run
      starts from; empty starts from random weights. Both have the same config.model, but
      for `dropout`, `attention`, `dtype` and `remat`.
    skip_nonfinite: how many updates in a row may be skipped because their loss or
      gradient is no finite number: they change neither parameters nor optimizer, and
      are counted. One more stops the run; 0 stops it at the first.
    fit_memory: where `tokens_per_batch` does not fit into the memory of the devices,
      take the largest that does, which the run then keeps, also where there is more.
    grace_seconds: the time from a signal that asks the run to stop to when its
      process has ended, saved or not; a little less than whoever sends the signal
      waits before it kills.
    reproducible: on a GPU, keep to kernels that give the same bits every time,
      which are slower; on a CPU all of them do, for the same number of cores.
  """

  steps: int = 100_000
  tokens_per_batch: int = 25_600
  label_smoothing: float = 0.1
  r_drop: float = 0.0
  ema_decay: float = 0.0
  log_every: int = 100
  eval_every: int = 1000
  checkpoint_every: int = 1000
  keep: int = 5
  patience: int = 0
  init_from: str = ''
  skip_nonfinite: int = 0
  fit_memory: bool = False
  grace_seconds: float = 25.0
  reproducible: bool = False

  def __post_init__(self):
    for name in ('steps', 'tokens_per_batch', 'log_every', 'eval_every', 'checkpoint_every',
                 'keep'):
      if getattr(self, name) < 1:
        raise UserError(f'train.{name} must be at least 1; got {getattr(self, name)}')
    if not 0.0 <= self.label_smoothing < 1.0:
      raise UserError(f'train.label_smoothing must be at least 0 and below 1; '
                      f'got {self.label_smoothing}')
    if not 0.0 <= self.r_drop < float('inf'):
      raise UserError(f'train.r_drop must be at least 0 and finite; got {self.r_drop}')
    if not 0.0 <= self.ema_decay < 1.0:
      raise UserError(f'train.ema_decay must be at least 0 and below 1; got {self.ema_decay}')
    for name in ('patience', 'skip_nonfinite'):
      if getattr(self, name) < 0:
        raise UserError(f'train.{name} must be at least 0; got {getattr(self, name)}')
    if not 0.0 < self.grace_seconds < float('inf'):
      raise UserError(f'train.grace_seconds must be above 0 and finite; '
                      f'got {self.grace_seconds}')


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """How many ways arrays are split over the devices; −1 takes the devices that are left.

  Attributes:
    data: ways to split the rows of a batch.
    fsdp: ways to split the rows, and each parameter along one of its axes too.
    tensor: ways to split heads, the feed-forward's inner width and the vocabulary.
  """

  data: int = -1
  fsdp: int = 1
  tensor: int = 1

  def __post_init__(self):
    sizes = (self.data, self.fsdp, self.tensor)
    if any(size < 1 and size != -1 for size in sizes) or sizes.count(-1) > 1:
      raise UserError(f'mesh sizes must be at least 1, and at most one of them −1; got '
                      f'data={self.data}, fsdp={self.fsdp}, tensor={self.tensor}')
