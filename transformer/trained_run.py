"""A trained run in Python: it translates, scores, shows its layers and gives a loss."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from transformer.data.batch import EOS_ID, Batch, check_batch
from transformer.data.text.text_files import check_several
from transformer.decoding import pairs
from transformer.decoding.config import Decoding, decoding_for
from transformer.decoding.constraint import FREE, Constraint
from transformer.decoding.ensemble import load_members
from transformer.decoding.likelihoods import token_log_probs
from transformer.decoding.translator import Translation, Translator
from transformer.errors import UserError
from transformer.model import inspection
from transformer.model.attention_weights import Attention, attention_weights
from transformer.model.inspection import Embeddings, Hidden
from transformer.runs.loading import Run, check_finite
from transformer.settings import check_range, converted
from transformer.training.mesh import sentence_mesh
from transformer.training.objective import (
  Objective,
  make_objective,
  model_inputs,
  smoothed,
)


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

  def translate(
    self,
    lines: Sequence[str],
    *,
    nbest: int | None = None,
    constraint: Constraint = FREE,
    **options: Any,
  ) -> list[Any]:
    """Translates lines as eval.py does with flags of these names.

    Args:
      nbest: the length of a list of (text, score) for each line, best first, at most `beam_size`;
        None is the best text alone.
      constraint: what translations must obey.
      **options: beam_size, alpha, dtype, batch_size, search; and for draws sample, temperature,
        top_k, top_p, seed. By default they are those of the run.

    Raises:
      UserError: an argument has a wrong name, type or value, or no translation can obey.
    """
    if nbest is not None:
      options['nbest'] = nbest
    decoding = decoding_for(self.config.decode, self.config.seed, **options)
    answers = self.answers(lines, decoding, constraint=constraint)
    if nbest is None:
      return [answer.text for answer in answers]
    return [list(answer.nbest) for answer in answers]

  def answers(
    self,
    lines: Sequence[str],
    decoding: Decoding,
    *,
    first: int = 0,
    constraint: Constraint = FREE,
  ) -> list[Translation]:
    """Translates lines, as `Translator` does, and warns how many were cut.

    On a CPU each core takes other batches; accelerators share each batch.

    Raises:
      UserError: no translation can obey, or a score is not finite.
    """
    rows = 1 if jax.default_backend() == 'cpu' else decoding.batch_size
    models = tuple(member.model for member in self.members)
    length = self.config.data.max_length
    translator = Translator(models, self.vocabulary, length, sentence_mesh(rows))
    params = [member.params for member in self.members]
    answers = translator(params, lines, decoding, first=first, constraint=constraint)
    scores = (answer.score for answer in answers)
    check_finite(self.members, scores, itertools.count(first + 1))
    cut = sum(answer.cut for answer in answers)
    if cut:
      logging.warning(
        '%d of %d sources exceeded data.max_length and were cut', cut, len(answers)
      )
    return answers

  def score(
    self, sources: Sequence[str], targets: Sequence[str], tokens: bool = False
  ) -> Any:
    """Returns the log-probability of each target, float64 [line], natural logarithms.

    With `tokens`, it is a list of (piece, log-probability) for each, the end token last. A pair
    that is too long for a search has NaN, or no pieces.
    """
    lines = token_log_probs(self.members, sources, targets)
    if tokens:
      return lines
    sums = [sum(score for _, score in line) if line else np.nan for line in lines]
    return np.array(sums)

  def encode(self, lines: Sequence[str], layers: bool = False) -> Hidden:
    """Returns the encoder's output for lines, which are one batch, with its mask.

    With `layers`, it is a dict by name, `embedding`, `encoder_0` and so on, before the final norm.
    """
    check_several(lines)
    batch = self.batch(lines, [''] * len(lines))
    inputs = model_inputs(batch)[:3]
    return inspection.hidden(self.model, self.params, *inputs, layers=layers)

  def decode(
    self, sources: Sequence[str], targets: Sequence[str], layers: bool = False
  ) -> Hidden:
    """Returns the decoder's output for pairs by teacher forcing, as `encode` does.

    Position t predicts token t of the target from BOS and the tokens before it.
    """
    batch = self.batch(sources, targets)
    inputs = model_inputs(batch)
    return inspection.hidden(self.model, self.params, *inputs, layers=layers)

  def logits(self, x_BTD: Any) -> jax.Array:
    """Maps a layer's output [..., D] to float32 [..., N], by final norm and output projection."""
    return inspection.layer_logits(self.model, self.params, x_BTD)

  def attention(self, source: str, target: str) -> Attention:
    """Returns the attention weights of all layers and heads for a line and its translation.

    What is too long for a search is cut, with a warning: so may be a translation by the run, whose
    text the vocabulary may split into more pieces.
    """
    longest = pairs.longest(self.config)
    encoded = pairs.encode_pairs(self.vocabulary, [source], [target])
    for (ids,), most in zip(encoded, longest, strict=True):
      if len(ids) > most:
        logging.warning('%d tokens were cut to %d', len(ids), most)
        ids[most - 1 :] = [EOS_ID]
    batch = pairs.as_batch(encoded, longest)
    weights = attention_weights(self.model, self.params, *model_inputs(batch))
    encoder, decoder, cross = jax.device_get(weights)
    (sources,), (targets,) = encoded
    s = slice(len(sources))
    t = slice(len(targets))
    return Attention(
      list(map(self.vocabulary.source.piece, sources)),
      list(map(self.vocabulary.target.piece, targets)),
      encoder[:, 0, :, s, s],
      decoder[:, 0, :, t, t],
      cross[:, 0, :, t, s],
    )

  def batch(self, sources: Sequence[str], targets: Sequence[str]) -> Batch:
    """Returns sentence pairs, a row each, whose length is a power of two, so that few differ."""
    longest = pairs.longest(self.config)
    encoded = pairs.encode_pairs(self.vocabulary, sources, targets)
    pairs.check_fitting(encoded, longest)
    return pairs.as_batch(encoded, longest)

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
    check_batch(batch)
    smoothing = converted(float | None, smoothing, 'smoothing')
    check_range('smoothing', smoothing, least=0, below=1)
    objective = self._objective if smoothing is None else smoothed(smoothing)
    frozen = objective.frozen
    sums = objective.loss(self.model, params, batch, dropout_key, frozen=frozen)
    return sums['loss'] / jnp.maximum(sums['weight'], 1.0)

  def embed(self, batch: Batch) -> Embeddings:
    """Returns the embeddings of a batch, a pure function of arrays."""
    check_batch(batch)
    return inspection.embeddings(self.model, self.params, *model_inputs(batch))

  def loss_of_embeddings(
    self, given: Embeddings, batch: Batch, smoothing: float = 0.0
  ) -> jax.Array:
    """Returns the cross entropy of a batch with other embeddings, which are as from `embed`."""
    shapes = jax.tree.map(jnp.shape, jax.eval_shape(self.embed, batch))
    if jax.tree.map(jnp.shape, given) != shapes:
      raise UserError(f'embeddings must be as run.embed returns them: {shapes}')
    with inspection.given_embeddings(self.params, given, self.config.model.dtype):
      return self.loss(self.params, batch, smoothing=smoothing)

  @functools.cached_property
  def _objective(self) -> Objective:
    # The first call may come while a gradient is traced.
    with jax.ensure_compile_time_eval():
      return make_objective(self.config, self.vocabulary)


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
  run, *others = load_members(workdir, str(checkpoint), average, ensemble, batch_size)
  return TrainedRun(**vars(run), others=tuple(others))
