"""The Python API of a trained run: translation, scoring, layer outputs, and the loss."""

import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from transformer.config_fields import check_range, coerce
from transformer.data.batch import Batch, check_batch
from transformer.data.text.text_files import check_lines
from transformer.decoding import batching
from transformer.decoding.config import DecodeOptions, resolve_decode_options
from transformer.decoding.constraint import UNCONSTRAINED, Constraint
from transformer.decoding.ensemble import load_ensemble
from transformer.decoding.target_log_probs import token_log_probs
from transformer.decoding.translator import Translation, Translator
from transformer.errors import UserError
from transformer.model import inspection
from transformer.model.attention_weights import SentenceAttention, attention_weights
from transformer.model.inspection import Embeddings, HiddenStates
from transformer.runs.loading import Run, check_finite_scores
from transformer.training.mesh import sentence_mesh
from transformer.training.objective import (
  Objective,
  cross_entropy,
  make_objective,
  model_inputs,
)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TrainedRun(Run):
  """A loaded run, or an ensemble: `translate` and `score` also use the models of `others`.

  Programs are compiled once per shape and settings. They are independent of the parameters:
  `dataclasses.replace(run, params=…)` returns the run with different parameters.
  """

  others: tuple[Run, ...] = ()

  def __repr__(self) -> str:
    names = (f'{r.workdir}, step {r.checkpoint_steps[-1]}' for r in self.members)
    return f'<{" and ".join(names)}>'

  @property
  def members(self) -> list[Run]:
    """All runs of the ensemble, starting with this one."""
    return [self, *self.others]

  def translate(
    self,
    lines: Sequence[str],
    *,
    nbest: int | None = None,
    constraint: Constraint = UNCONSTRAINED,
    **options: Any,
  ) -> list[Any]:
    """Translates lines as eval.py does; options have the names of its flags.

    Args:
      nbest: number of translations per line, at most `beam_size`: returns a list of (text, score)
        for each line, best first. None returns only the best text.
      constraint: a constraint on translations.
      **options: beam_size, alpha, dtype, batch_size, search; for sampling: sample, temperature,
        top_k, top_p, seed. The defaults are the settings of the run.

    Raises:
      UserError: an argument has an invalid name, type or value, or the constraint cannot be met.
    """
    if nbest is not None:
      options['nbest'] = nbest
    decoding = resolve_decode_options(self.config.decode, self.config.seed, **options)
    results = self.translations(lines, decoding, constraint=constraint)
    if nbest is None:
      return [result.text for result in results]
    return [list(result.nbest) for result in results]

  def translations(
    self,
    lines: Sequence[str],
    decoding: DecodeOptions,
    *,
    offset: int = 0,
    constraint: Constraint = UNCONSTRAINED,
  ) -> list[Translation]:
    """Translates lines with a `Translator`, and warns if sources were truncated.

    On a CPU, up to four batches are translated at a time; accelerators split each batch.

    Raises:
      UserError: the constraint cannot be met, or a score is not finite.
    """
    rows = 1 if jax.default_backend() == 'cpu' else decoding.batch_size
    models = tuple(member.model for member in self.members)
    length = self.config.data.max_length
    translator = Translator(models, self.vocabulary, length, sentence_mesh(rows))
    params = [member.params for member in self.members]
    results = translator(params, lines, decoding, offset=offset, constraint=constraint)
    scores = (result.score for result in results)
    check_finite_scores(self.members, scores, offset + 1)
    if truncated := sum(result.truncated for result in results):
      logging.warning(
        '%d of %d sources were truncated to data.max_length', truncated, len(results)
      )
    return results

  def score(
    self, sources: Sequence[str], targets: Sequence[str], tokens: bool = False
  ) -> Any:
    """Returns the log-probability of each target, float64 [line], natural logarithms.

    With `tokens`, returns a list of (piece, log-probability) for each target, EOS last. A pair that
    is too long for a search gets NaN, or with `tokens` an empty list.
    """
    lines = token_log_probs(self.members, sources, targets)
    if tokens:
      return lines
    sums = [sum(score for _, score in line) if line else np.nan for line in lines]
    return np.array(sums)

  def encode(self, lines: Sequence[str], layers: bool = False) -> HiddenStates:
    """Returns the encoder outputs for lines, which form one batch, and their mask.

    With `layers`, the outputs are a dict by layer name: `embedding`, `encoder_0` and so on, before
    the final norm.
    """
    check_lines(lines)
    inputs = model_inputs(self.batch(lines, [''] * len(lines)))[:3]
    return inspection.hidden_states(self.model, self.params, *inputs, layers=layers)

  def decode(
    self, sources: Sequence[str], targets: Sequence[str], layers: bool = False
  ) -> HiddenStates:
    """Returns the decoder outputs for sentence pairs by teacher forcing; `layers` as in `encode`.

    Position t predicts token t of the target from BOS and the tokens before t.
    """
    inputs = model_inputs(self.batch(sources, targets))
    return inspection.hidden_states(self.model, self.params, *inputs, layers=layers)

  def logits(self, x_BTD: Any) -> jax.Array:
    """Maps a decoder layer output [..., D] to float32 logits [..., N], with the final norm."""
    return inspection.layer_logits(self.model, self.params, x_BTD)

  def attention(self, source: str, target: str) -> SentenceAttention:
    """Returns the attention weights of all layers and heads for a source and its translation.

    Source and target are truncated, with a warning, if they are too long for a search. This can
    happen even to a translation by the run, if tokenizing its text yields more pieces.
    """
    limits = batching.max_lengths(self.config)
    encoded = batching.encode_pairs(self.vocabulary, [source], [target])
    for (ids,), limit in zip(encoded, limits, strict=True):
      if len(ids) > limit:
        logging.warning('%d tokens were truncated to %d', len(ids), limit)
        ids[:] = batching.truncated(ids[:-1], limit)
    batch = batching.batch_from_pairs(encoded, limits)
    weights = attention_weights(self.model, self.params, *model_inputs(batch))
    encoder, decoder, cross = jax.device_get(weights)
    (sources,), (targets,) = encoded
    s = slice(len(sources))
    t = slice(len(targets))
    return SentenceAttention(
      list(map(self.vocabulary.source.piece, sources)),
      list(map(self.vocabulary.target.piece, targets)),
      encoder[:, 0, :, s, s],
      decoder[:, 0, :, t, t],
      cross[:, 0, :, t, s],
    )

  def batch(self, sources: Sequence[str], targets: Sequence[str]) -> Batch:
    """Returns a batch, one pair per row; a side is padded to a power of two, at most its limit."""
    limits = batching.max_lengths(self.config)
    encoded = batching.encode_pairs(self.vocabulary, sources, targets)
    batching.check_lengths(encoded, limits)
    return batching.batch_from_pairs(encoded, limits)

  def loss(
    self,
    params: Any,
    batch: Batch,
    dropout_key: jax.Array | None = None,
    *,
    smoothing: float | None = None,
  ) -> jax.Array:
    """Returns the mean loss of a batch in nats per target token, a pure function of arrays.

    By default, the loss is the run's `train.objective`. With `smoothing`, it is cross entropy with
    this label smoothing; 0 is plain cross entropy. Without `dropout_key`, there is no dropout.
    """
    check_batch(batch)
    smoothing = coerce(float | None, smoothing, 'smoothing')
    check_range('smoothing', smoothing, min=0, below=1)
    objective = self._objective if smoothing is None else cross_entropy(smoothing)
    sums = objective.loss(
      self.model, params, batch, dropout_key, frozen=objective.frozen
    )
    return sums['loss'] / jnp.maximum(sums['weight'], 1.0)

  def embed(self, batch: Batch) -> Embeddings:
    """Returns the embeddings of a batch, a pure function of arrays."""
    check_batch(batch)
    return inspection.embeddings(self.model, self.params, *model_inputs(batch))

  def loss_of_embeddings(
    self, embeddings: Embeddings, batch: Batch, smoothing: float = 0.0
  ) -> jax.Array:
    """Returns the cross entropy of a batch, with `embeddings` instead of those of `embed`."""
    shapes = jax.tree.map(jnp.shape, jax.eval_shape(self.embed, batch))
    if jax.tree.map(jnp.shape, embeddings) != shapes:
      raise UserError(f'embeddings must be as run.embed returns them: {shapes}')
    dtype = self.config.model.dtype
    with inspection.override_embeddings(self.params, embeddings, dtype):
      return self.loss(self.params, batch, smoothing=smoothing)

  @functools.cached_property
  def _objective(self) -> Objective:
    # The first call may be inside a traced gradient.
    with jax.ensure_compile_time_eval():
      return make_objective(self.config, self.vocabulary)


def load(
  workdir: str | os.PathLike[str],
  checkpoint: str | int = 'best',
  average: int = 1,
  ensemble: Iterable[str | os.PathLike[str]] = (),
  batch_size: int | None = None,
) -> TrainedRun:
  """Loads a run from its directory; the arguments correspond to flags of eval.py.

  Args:
    checkpoint: `best`, the checkpoint of the best evaluation; `latest`; or a step.
    average: number of checkpoints to average: the selected one and the latest before it.
    ensemble: directories of other runs, whose probabilities are averaged with the first run's. Each
      loads its best checkpoint, or its latest if `checkpoint` is `latest`.
    batch_size: number of sentences per batch; None is `decode.batch_size`.

  Raises:
    UserError: a directory has no run or too few checkpoints, or does not fit the first run.
  """
  run, *others = load_ensemble(workdir, str(checkpoint), average, ensemble, batch_size)
  return TrainedRun(**vars(run), others=tuple(others))
