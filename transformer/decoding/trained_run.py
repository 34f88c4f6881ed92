"""A trained run in Python: it translates, scores, encodes, attends and gives a loss."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np

from transformer import own_code
from transformer.data.batch import PAD_ID, Batch, check_batch
from transformer.data.text.text_files import check_several
from transformer.decoding import pairs
from transformer.decoding.config import SETTINGS, CallConfig, Decoding
from transformer.decoding.constraint import FREE, Constraint, Prefixes
from transformer.decoding.likelihoods import score_with
from transformer.decoding.translator import Translation, Translator
from transformer.errors import UserError, shown
from transformer.model.attention_weights import AttentionWeights, attention_weights
from transformer.runs.loading import Run, check_finite, check_params, load_run
from transformer.settings import check_range, converted, nearest_name
from transformer.training.mesh import sentence_mesh
from transformer.training.objective import Objective, make_objective, smoothed

_translator: Callable[..., Translator] = functools.lru_cache(maxsize=8)(Translator)


class Encoded(NamedTuple):
  """What the encoder makes of lines of at most S tokens, end tokens included."""

  output: np.ndarray  # float32 [line, S, D], zero where there is no token
  mask: np.ndarray  # boolean [line, S], True at tokens


class Attention(NamedTuple):
  """The weights of L layers of H heads for S tokens and their translation of T; rows sum to one.

  Row t of `decoder` predicts piece t of the target from the begin token and the pieces before.
  """

  source: list[str]  # pieces, the end token last
  target: list[str]
  encoder: np.ndarray  # float32 [L, H, S, S]
  decoder: np.ndarray  # float32 [L, H, T, T]
  cross: np.ndarray  # float32 [L, H, T, S]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TrainedRun(Run):
  """A run that is loaded; or an ensemble, whose `others` help to translate and to score.

  Programs are compiled once for each shape and choice of settings, and for all parameters:
  `dataclasses.replace(run, params=…)` is the run with others.
  """

  others: tuple[Run, ...] = ()

  def __repr__(self) -> str:
    return f'<{" and ".join(f"{run.workdir}, step {run.steps[-1]}" for run in self.members)}>'

  @property
  def members(self) -> list[Run]:
    """All runs of the ensemble, this one first."""
    return [self, *self.others]

  @overload
  def translate(self, lines: Sequence[str], *, nbest: None = None, **others: Any) -> list[str]: ...
  @overload
  def translate(
    self, lines: Sequence[str], *, nbest: int, **others: Any
  ) -> list[list[tuple[str, float]]]: ...
  def translate(
    self,
    lines: Sequence[str],
    *,
    nbest: int | None = None,
    prefix: Sequence[str] | None = None,
    constraint: Constraint = FREE,
    **settings: Any,
  ) -> list[Any]:
    """Translates lines as eval.py does with flags of these names.

    Args:
      nbest: the length of a list of (text, score) for each line, best first, at most `beam_size`;
        None is the best text alone.
      prefix: what each translation begins with; an empty text leaves it free.
      constraint: what translations must obey, in place of prefixes.
      **settings: beam_size, alpha, dtype, batch_size; and for draws sample, temperature, top_k,
        top_p, seed. By default they are those of the run.
    """
    for name in settings.keys() - {*SETTINGS}:
      raise UserError(
        f'translate takes no {name}; '
        f'{nearest_name(name, [*SETTINGS, "nbest", "prefix", "constraint"])}'
      )
    decoding = Decoding.of(
      self.config.decode,
      self.config.seed,
      settings | ({} if nbest is None else {'nbest': nbest}),
      CallConfig,
    )
    if prefix is not None:
      if constraint is not FREE:
        raise UserError('translate takes a prefix or a constraint; got both; leave one out')
      constraint = Prefixes(prefix)
    if not isinstance(constraint, Constraint):
      raise UserError(
        f'constraint must be a Constraint, see docs/own-parts.md; got {shown(constraint)}'
      )
    answers = self.answers(lines, decoding, constraint=constraint)
    pairs.warn_of_cut([answer.cut for answer in answers], self.config.data.max_length)
    return [answer.text if nbest is None else list(answer.nbest) for answer in answers]

  def answers(
    self,
    lines: Sequence[str],
    decoding: Decoding,
    first: int = 0,
    constraint: Constraint = FREE,
    progress: Callable[[int], Any] = lambda count: None,
  ) -> list[Translation]:
    """Translates lines, as `Translator` does, and refuses scores that are not finite."""
    answers = self.translator(decoding)(
      [member.params for member in self.members], lines, first, constraint, progress, decoding.seed
    )
    check_finite(self.members, (answer.score for answer in answers), itertools.count(first + 1))
    return answers

  def translator(self, decoding: Decoding) -> Translator:
    """Returns the translator of these models; there is one for all runs like this one.

    On a CPU each core takes other batches; accelerators share each batch.
    """
    size = decoding.config.batch_size
    mesh = None if jax.default_backend() == 'cpu' else sentence_mesh(size)
    return _translator(
      tuple(member.model for member in self.members),
      self.vocabulary,
      decoding.config,
      self.config.data.max_length,
      decoding.nbest,
      mesh,
    )

  @overload
  def score(
    self, sources: Sequence[str], targets: Sequence[str], tokens: Literal[False] = False
  ) -> np.ndarray: ...
  @overload
  def score(
    self, sources: Sequence[str], targets: Sequence[str], tokens: Literal[True]
  ) -> list[list[tuple[str, float]]]: ...
  def score(self, sources: Sequence[str], targets: Sequence[str], tokens: bool = False) -> Any:
    """Returns the log-probability of each target, float64 [line], natural logarithms.

    With `tokens`, it is a list of (piece, log-probability) for each, the end token last. A pair
    that is too long for a search has NaN, or no pieces; a warning names it.
    """
    tokens = converted(bool, tokens, 'tokens')
    likelihoods = score_with(self.members, sources, targets, tokens)
    if tokens:
      return [list(pair.pieces) for pair in likelihoods]
    return np.array([np.nan if pair.log_prob is None else pair.log_prob for pair in likelihoods])

  def encode(self, lines: Sequence[str]) -> Encoded:
    """Returns the encoder's output for lines, with its mask."""
    check_several(lines)
    ids, ends = self._fitting(lines, [''] * len(lines))
    mask_BS = pairs.padded(ids, max(map(len, ids), default=0), len(ids)) != PAD_ID
    output_BSD = np.zeros((*mask_BS.shape, self.config.model.model_dim), np.float32)
    for indices, source_BS, _ in pairs.pair_batches(
      ids, ends, range(len(ids)), pairs.longest(self.config), self.config.decode.batch_size
    ):
      states_BSD = jax.device_get(_states(self.model, self.params, source_BS))
      for index, states_SD in zip(indices, states_BSD, strict=False):
        output_BSD[index, mask_BS[index]] = states_SD[: len(ids[index])]
    return Encoded(output_BSD, mask_BS)

  def attention(self, source: str, target: str) -> Attention:
    """Returns the attention weights of all layers and heads for a line and its translation."""
    (sources,), (targets,) = self._fitting([source], [target])
    return Attention(
      [*map(self.vocabulary.source.piece, sources)],
      [*map(self.vocabulary.target.piece, targets)],
      *map(np.asarray, self.attention_of(sources, targets)),
    )

  def attention_of(self, source: Sequence[int], target: Sequence[int]) -> AttentionWeights:
    """Returns the weights, without an axis B, for the ids of a pair, end tokens last."""
    ((_, *sides),) = pairs.pair_batches([source], [target], [0], pairs.longest(self.config), 1)
    encoder, decoder, cross = jax.device_get(_weights(self.model, self.params, *sides))
    s = slice(len(source))
    t = slice(len(target))
    return AttentionWeights(encoder[:, 0, :, s, s], decoder[:, 0, :, t, t], cross[:, 0, :, t, s])

  def batch(self, sources: Sequence[str], targets: Sequence[str]) -> Batch:
    """Returns sentence pairs, a row each, whose length is a power of two, so that few differ."""
    return pairs.as_batch(self._fitting(sources, targets), pairs.longest(self.config))

  def loss(
    self,
    params: Any,
    batch: Batch,
    dropout_key: jax.Array | None = None,
    *,
    smoothing: float | None = None,
  ) -> jax.Array:
    """Returns the mean loss of a batch in nats for each target token, a pure function of arrays.

    It is what the run's updates minimise, `train.objective`. With `smoothing` it is cross entropy
    with this label smoothing; 0 is the plain one. Without a random key there is no dropout.
    """
    check_params(self.model, params)
    check_batch(batch)
    if dropout_key is not None:
      with own_code.guarded('dropout_key must be one random key, such as jax.random.key(0)'):
        jax.eval_shape(jax.random.bits, dropout_key)
    smoothing = converted(float | None, smoothing, 'smoothing')
    check_range('smoothing', smoothing, least=0, below=1)
    objective = self._objective if smoothing is None else smoothed(smoothing)
    sums = objective.loss(self.model, params, batch, dropout_key, frozen=objective.frozen)
    return sums['loss'] / jnp.maximum(sums['weight'], 1.0)

  @functools.cached_property
  def _objective(self) -> Objective:
    with jax.ensure_compile_time_eval():  # The first call may come while a gradient is traced.
      return make_objective(self.config, self.vocabulary)

  def _fitting(self, sources: Sequence[str], targets: Sequence[str]) -> list[list[list[int]]]:
    encoded = pairs.encode_pairs(self.vocabulary, sources, targets)
    for name in pairs.too_long(encoded, pairs.longest(self.config)).values():
      raise UserError(f'a text must not be longer than in a search; got {name}; split it')
    return encoded


def load(
  workdir: str | os.PathLike[str],
  checkpoint: str | int = 'best',
  average: int = 1,
  ensemble: Iterable[str | os.PathLike[str]] = (),
  batch_size: int | None = None,
) -> TrainedRun:
  """Loads a run from its directory; the arguments are as the flags of eval.py.

  Args:
    checkpoint: `best`, for the best evaluation; `latest`; or a step.
    average: number of checkpoints to average: the chosen one and the latest before it.
    ensemble: other runs, whose probabilities are averaged with those of the first. They take their
      best checkpoint, or with `latest` their latest.
    batch_size: sentences to work on together, instead of `decode.batch_size`.

  Raises:
    UserError: a directory holds no run, too few checkpoints, or a run that does not fit the first.
  """
  average = converted(int, average, 'average')
  batch_size = converted(int | None, batch_size, 'batch_size')
  check_range('average', average, least=1)
  with own_code.guarded('ensemble must be a list of the directories of runs'):
    folders = [ensemble] if isinstance(ensemble, str | os.PathLike) else list(ensemble)
  run = load_run(workdir, str(checkpoint), average, batch_size)
  others = []
  _, most = pairs.longest(run.config)
  for other in folders:
    member = load_run(
      other, 'latest' if checkpoint == 'latest' else 'best', average, run.config.decode.batch_size
    )
    if member.vocabulary != run.vocabulary:
      raise UserError(
        f'the runs of an ensemble must have the same vocabulary, and {other} has '
        f'another one; train it with the same text and config.data, or leave it out'
      )
    model = member.config.model
    if model.positions == 'learned' and model.max_positions < most:
      raise UserError(
        f'the runs of an ensemble must have positions for {most} tokens, as '
        f'data.max_length and decode.max_extra_length of the first run say; '
        f'{other} learned {model.max_positions}; leave it out, or begin with it'
      )
    others.append(member)
  return TrainedRun(**vars(run), others=tuple(others))


@functools.partial(jax.jit, static_argnums=0)
def _states(model, params, source_BS):
  output_BSD = model.apply({'params': params}, *pairs.rows_of(source_BS), method='encode')
  return output_BSD.astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def _weights(model, params, *sides):
  return attention_weights(model, params, *pairs.forced(*sides))
