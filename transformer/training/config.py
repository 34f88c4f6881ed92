"""The settings of `config.optimizer`, `config.train` and `config.mesh`."""

import dataclasses
from math import inf

from transformer import plugins
from transformer.config_fields import check_ranges, config_field
from transformer.errors import UserError, short_repr

ALGORITHMS = ('adam', 'muon')
STANDARD_METRICS = ('loss', 'perplexity', 'bleu', 'chrf')
# Whether a schedule depends on train.steps. With such a schedule, or a custom one, train.steps
# cannot change on resume.
SCHEDULES = {'noam': False, 'inverse_sqrt': False, 'cosine': True, 'constant': False}


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """The optimizer and its learning rate; the defaults are the paper's (section 5.3).

  Attributes:
    algorithm: `adam`, or `muon` (Jordan et al., 2024) for the matrices of attention and
      feed-forward layers, with Adam and Nesterov momentum (Dozat, 2016) for other parameters. Muon
      updates are scaled to the size of Adam's (Liu et al., 2025, "Muon is Scalable for LLM
      Training"), and so use the same learning rate. Or a custom algorithm: MODULE:FUNCTION, or a
      tuple of MODULE:FUNCTION and its arguments; see docs/plugins.md.
    schedule: `noam` is equation 3, `inverse_sqrt` the same curve with a given peak. `cosine`
      decays from the peak to zero at `train.steps`, `constant` stays at the peak. All have a
      linear warmup over `warmup_steps`. Or a custom schedule, given as for `algorithm`.
    noam_scale: factor on the `noam` schedule; the other named schedules ignore it.
    peak_learning_rate: maximum learning rate of all schedules except `noam`.
    warmup_steps: steps until the learning rate reaches its peak.
    b2: decay of Adam's second moment, β₂.
    weight_decay: decoupled weight decay of the matrices of attention and feed-forward layers. Each
      step subtracts learning rate × weight_decay × the matrix (Loshchilov and Hutter, 2019,
      "Decoupled Weight Decay Regularization").
    clip_norm: maximum global norm of the gradient; 0: no clipping.
    num_microbatches: number of microbatches per batch, to fit into memory; each has a forward and a
      backward pass. Equals the full-batch step up to rounding and dropout bits.
  """

  algorithm: plugins.Setting = 'adam'
  schedule: plugins.Setting = 'noam'
  noam_scale: float = config_field(1.0, above=0, below=inf)
  peak_learning_rate: float = config_field(7e-4, above=0, below=inf)
  warmup_steps: int = config_field(4000, min=1)
  b2: float = config_field(0.98, min=0, below=1)
  weight_decay: float = config_field(0.0, min=0, below=inf)
  clip_norm: float = config_field(0.0, min=0, below=inf)
  num_microbatches: int = config_field(1, min=1)

  @property
  def ignored_rate_key(self) -> str:
    """The key that a named schedule ignores: `noam_scale` or `peak_learning_rate`; '' if custom."""
    if plugins.name_of(self.schedule) not in SCHEDULES:
      return ''
    return 'peak_learning_rate' if self.schedule == 'noam' else 'noam_scale'

  def __post_init__(self):
    check_ranges(self, 'optimizer.')


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """The length of a run, its batches and loss, and its evaluations and checkpoints.

  Attributes:
    steps: number of training steps.
    tokens_per_batch: target positions per batch, over all devices.
    label_smoothing: ε of section 5.4.
    objective: the training objective: MODULE:FUNCTION, or a tuple of MODULE:FUNCTION and its
      arguments, such as `('transformer.tools.r_drop:r_drop', 5.0)`; see docs/objectives.md. Empty:
      label-smoothed cross entropy.
    objective_runs: directories of runs that `objective` reads; they may move before a resume.
    ema_decay: decay of an exponential moving average of the parameters (Polyak and Juditsky, 1992),
      such as 0.999, used for evaluation and translation; 0: no average.
    log_every: steps between metric logs.
    eval_every: steps between evaluations on the validation split.
    checkpoint_every: steps between checkpoints. A new best evaluation also saves a checkpoint.
    keep: number of latest checkpoints to keep, in addition to the best.
    patience: number of consecutive evaluations without a new best after which the run stops; 0:
      no early stopping.
    best_by: the validation metric that selects the best checkpoint: `loss`, `perplexity`, `bleu`,
      `chrf` (chrF2++, computed only if it is named here), or a score of `valid_metric`, where
      higher is better. `talks/loss` is the loss on the dataset `talks` of `data.valid`. Empty:
      BLEU. All scores of BLEU, chrF2++ or `f1` below 1 count as equal. Lower loss breaks ties.
    valid_metric: a custom metric for the validation split, as MODULE:FUNCTION, like --metric of
      eval.py; empty: none. It is logged as `valid/FUNCTION`.
    trackers: classes of trackers, built-in or custom, to log the run to, as MODULE:CLASS; see
      docs/trackers.md. TensorBoard logs are always written.
    init_from: directory of a run whose best weights and vocabulary initialize this run; empty:
      random weights. Both runs need the same config.model, except dropout, `attention`, `dtype`
      and `remat`.
    max_consecutive_nonfinite: maximum consecutive steps to skip because their loss or gradient is
      not finite; one more stops the run. Skipped steps are counted, and change no parameters.
    grace_seconds: time limit, in seconds, for saving and exiting after a signal; set it a little
      below the delay after which the scheduler kills the process.
    reproducible: on a GPU, use only deterministic kernels, which are slower. Use it only with
      model.attention=reference: with cudnn, training crashed on an H200. On a CPU, all kernels are
      deterministic for the same number of cores.
  """

  steps: int = config_field(100_000, min=1)
  tokens_per_batch: int = config_field(25_600, min=1)
  label_smoothing: float = config_field(0.1, min=0, below=1)
  objective: plugins.Setting = ''
  objective_runs: tuple[str, ...] = ()
  ema_decay: float = config_field(0.0, min=0, below=1)
  log_every: int = config_field(100, min=1)
  eval_every: int = config_field(1000, min=1)
  checkpoint_every: int = config_field(1000, min=1)
  keep: int = config_field(5, min=1)
  patience: int = config_field(0, min=0)
  best_by: str = ''
  valid_metric: str = ''
  trackers: tuple[str, ...] = ()
  init_from: str = ''
  max_consecutive_nonfinite: int = config_field(0, min=0)
  grace_seconds: float = config_field(25.0, above=0, max=10**9)
  reproducible: bool = False

  def __post_init__(self):
    check_ranges(self, 'train.')
    if not all(self.objective_runs) or (self.objective_runs and not self.objective):
      raise UserError(
        f'train.objective_runs must name the directories of runs, for an objective '
        f'that reads them; got {short_repr(self.objective_runs)}'
      )


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """The sizes of the mesh axes; −1: all remaining devices.

  Attributes:
    data: number of shards of the rows of a batch; −1: all devices that the other axes leave.
    fsdp: number of shards of each `data` shard, and of one axis of each matrix and embedding table.
    tensor: number of shards of heads, feed-forward width and vocabulary.
  """

  data: int = -1
  fsdp: int = 1
  tensor: int = 1

  def __post_init__(self):
    check_ranges(self, 'mesh.')
    sizes = (self.data, self.fsdp, self.tensor)
    if any(size < 1 and size != -1 for size in sizes) or sizes.count(-1) > 1:
      raise UserError(
        f'mesh sizes must be at least 1, and at most one of them −1; got '
        f'data={self.data}, fsdp={self.fsdp}, tensor={self.tensor}'
      )
