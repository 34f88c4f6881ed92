"""The settings of `config.optimizer`, `config.train` and `config.mesh`."""

import dataclasses
from math import inf

from transformer import own_code
from transformer.errors import UserError, shown
from transformer.settings import check_ranges, setting

ALGORITHMS = ('adam', 'muon')
STANDARD_METRICS = ('loss', 'perplexity', 'bleu', 'chrf')
# Whether a schedule depends on train.steps. With such a one, or its own, a run keeps that number.
SCHEDULES = {'paper': False, 'inverse_sqrt': False, 'cosine': True, 'constant': False}


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """The optimizer and its learning rate; the defaults are the paper's (section 5.3).

  Attributes:
    algorithm: `adam`, or `muon` (Jordan et al., 2024) for the matrices of attention and
      feed-forward layers, with Adam and Nesterov momentum (Dozat, 2016) for all else. Its updates
      have the size of Adam's (Liu et al., 2025, "Muon is Scalable for LLM Training"), and so take
      the same learning rate. Or MODULE:FUNCTION, or a tuple of that and its numbers; see
      docs/own-parts.md.
    schedule: `paper` is equation 3, `inverse_sqrt` the same curve with a given peak. `cosine`
      falls from the peak to zero at `train.steps`, `constant` stays at the peak. All rise
      linearly to the peak over `warmup_steps`. Or one of your own, as for `algorithm`.
    scale: factor on the paper's schedule; the other named ones ignore it.
    peak_learning_rate: highest learning rate of all schedules but the paper's.
    warmup_steps: updates until the learning rate is at its peak.
    b2: decay of Adam's second moment, β₂.
    weight_decay: weight decay of the matrices of attention and feed-forward layers. Each update
      subtracts this share of a matrix, times the learning rate (Loshchilov and Hutter, 2019,
      "Decoupled Weight Decay Regularization").
    clip_norm: largest global norm of a gradient; 0 does not clip.
    accumulate: number of parts that a batch is cut into to fit into memory, with a forward
      and a backward pass each. The update is the same but for rounding and dropout bits.
  """

  algorithm: own_code.Setting = 'adam'
  schedule: own_code.Setting = 'paper'
  scale: float = setting(1.0, above=0, below=inf)
  peak_learning_rate: float = setting(7e-4, above=0, below=inf)
  warmup_steps: int = setting(4000, least=1)
  b2: float = setting(0.98, least=0, below=1)
  weight_decay: float = setting(0.0, least=0, below=inf)
  clip_norm: float = setting(0.0, least=0, below=inf)
  accumulate: int = setting(1, least=1)

  @property
  def ignored_rate_key(self) -> str:
    """The key that a named schedule ignores: `scale` or `peak_learning_rate`; else nothing."""
    if own_code.name_of(self.schedule) not in SCHEDULES:
      return ''
    return 'peak_learning_rate' if self.schedule == 'paper' else 'scale'

  def __post_init__(self):
    check_ranges(self, 'optimizer.')


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """The length of a run, its batches and loss, and its evaluations and checkpoints.

  Attributes:
    steps: number of updates in the run.
    tokens_per_batch: target positions in a batch, over all devices.
    label_smoothing: ε of section 5.4.
    objective: what an update minimises: MODULE:FUNCTION, or a tuple of that and its numbers, such
      as `('transformer.tools.r_drop:r_drop', 5.0)`; see docs/objectives.md. Empty is the smoothed
      cross entropy.
    objective_runs: directories of runs that `objective` reads; a run that goes on may find them
      elsewhere.
    ema_decay: decay of an exponential moving average of the parameters (Polyak and Juditsky, 1992),
      such as 0.999, which evaluation and translation use; 0 keeps none.
    log_every: updates between two lines of metrics.
    eval_every: updates between two evaluations on the validation split.
    checkpoint_every: updates between two checkpoints. An evaluation that is the best so far
      saves one too.
    keep: number of latest checkpoints that are kept, beside the best.
    patience: the run stops after this many evaluations in a row without a new best; 0 never
      stops early.
    best_by: the metric of the validation split that decides which checkpoint is the best:
      `loss`, `perplexity`, `bleu`, `chrf` (chrF2++, computed only if it is named here), or a
      name of `valid_metric`'s, of which more is better. `talks/loss` is that of the set `talks`
      of `data.valid`. Empty is BLEU. The lower loss decides ties, and among BLEU, chrF2++ or `f1`
      below 1.
    valid_metric: a metric of your own for the validation split, as MODULE:FUNCTION, like
      --metric of eval.py; empty is none. It is recorded as `valid/FUNCTION`.
    report: classes of trackers, or of your own, that are told of the run while it trains, as
      MODULE:CLASS; see docs/trackers.md. TensorBoard is always told.
    init_from: directory of a run whose best weights and vocabulary this run starts from;
      empty starts from random weights. Both need the same config.model, except dropout,
      `attention`, `dtype` and `remat`.
    skip_nonfinite: number of updates in a row that may be skipped because their loss or gradient is
      not finite; one more stops the run. Skipped ones are counted, and change nothing else.
    grace_seconds: seconds from a signal to the end of the process: a little less than the sender
      waits before it kills.
    reproducible: on a GPU, use only kernels that give the same bits every time; they are
      slower. On a CPU, all kernels give the same bits for the same number of cores.
  """

  steps: int = setting(100_000, least=1)
  tokens_per_batch: int = setting(25_600, least=1)
  label_smoothing: float = setting(0.1, least=0, below=1)
  objective: own_code.Setting = ''
  objective_runs: tuple[str, ...] = ()
  ema_decay: float = setting(0.0, least=0, below=1)
  log_every: int = setting(100, least=1)
  eval_every: int = setting(1000, least=1)
  checkpoint_every: int = setting(1000, least=1)
  keep: int = setting(5, least=1)
  patience: int = setting(0, least=0)
  best_by: str = ''
  valid_metric: str = ''
  report: tuple[str, ...] = ()
  init_from: str = ''
  skip_nonfinite: int = setting(0, least=0)
  grace_seconds: float = setting(25.0, above=0, most=10**9)
  reproducible: bool = False

  def __post_init__(self):
    check_ranges(self, 'train.')
    if not all(self.objective_runs) or (self.objective_runs and not self.objective):
      raise UserError(
        f'train.objective_runs must name the directories of runs, for an objective '
        f'that reads them; got {shown(self.objective_runs)}'
      )


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """The sizes of the mesh axes; −1 takes all devices that are left.

  Attributes:
    data: number of parts that the rows of a batch are split into.
    fsdp: number of parts that each of these is split into, and one axis of each matrix and table of
      embeddings too.
    tensor: number of parts that heads, the inner width and the vocabulary are split into.
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
