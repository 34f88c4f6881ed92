"""Translation and scoring by a run, or by an ensemble of runs with averaged probabilities."""

import itertools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from transformer.data.vocabulary.vocabularies import model_files
from transformer.decoding.config import DecodeConfig
from transformer.decoding.constraint import FREE, Constraint
from transformer.decoding.likelihoods import Likelihood, score_pairs
from transformer.decoding.translator import Translation, Translator
from transformer.errors import UserError
from transformer.runs.loading import Run, diverged, load_run
from transformer.system.machine import usable_cores
from transformer.training.mesh import sentence_sharding

# Batches that are computed side by side on a CPU: each takes memory, and uses several cores for its
# larger matrix products.
_MOST_BATCHES = 4


def load_ensemble(run: Run, others: Sequence[str | os.PathLike], checkpoint: str = 'best',
                  average: int = 1) -> list[Run]:
  """Loads other runs, and returns all, `run` first; its config says how text is translated.

  Args:
    run: the first run.
    others: directories of the other runs, which must have its vocabulary.
    checkpoint, average: as in `load_run`, for each of the others.

  Raises:
    UserError: a directory holds no run, or one with another vocabulary or too few positions or
      checkpoints.
  """
  members, (_, longest) = [run], _longest(run)
  for workdir in others:
    member = load_run(workdir, checkpoint, average, run.config.decode.batch_size)
    if model_files(member.vocabulary) != model_files(run.vocabulary):
      raise UserError(f'the runs of an ensemble must have the same vocabulary, and {workdir} has '
                      f'another one; train that run on the same text with the same config.data, '
                      f'or leave it out')
    if member.model.config.positions == 'learned' and member.model.config.max_positions < longest:
      raise UserError(f'the runs of an ensemble must have positions for {longest} tokens, as '
                      f'data.max_length and decode.max_extra_length of the first run say; '
                      f'{workdir} learned {member.model.config.max_positions}; leave it out, or '
                      f'take it as --workdir')
    members.append(member)
  return members


def make_translator(members: Sequence[Run], decode: DecodeConfig, seed: int,
                    nbest: int = 1) -> Translator:
  """Builds the translator of runs, with the vocabulary and on the devices of the first.

  On a CPU each core takes other batches; accelerators share each batch.

  Args:
    members: the runs.
    decode, seed, nbest: as `Translator` takes them.

  Raises:
    UserError: the beam size or `nbest` is out of range.
  """
  run, is_cpu = members[0], jax.default_backend() == 'cpu'
  return Translator([member.model for member in members], run.vocabulary, decode,
                    run.config.data.max_length, seed, nbest=nbest,
                    rows=None if is_cpu else sentence_sharding(run.mesh, decode.batch_size),
                    threads=min(usable_cores(), _MOST_BATCHES))


def translate_with(members: Sequence[Run], translate: Translator, lines: Sequence[str],
                   first: int = 0, constraint: Constraint = FREE,
                   progress: Callable[[int], Any] = lambda count: None) -> list[Translation]:
  """Translates lines with runs.

  Args:
    members: the runs.
    translate: a translator; it may have been built for other runs with the same config.
    lines, first, constraint, progress: as `Translator` takes them.

  Raises:
    UserError: a log-probability is not finite, or as `Translator` raises it.
  """
  answers = translate([member.params for member in members], lines, first, constraint, progress)
  check_finite(members, (answer.score for answer in answers), itertools.count(first + 1))
  return answers


def score_with(members: Sequence[Run], sources: Sequence[str], targets: Sequence[str],
               by_token: bool = False) -> list[Likelihood]:
  """Returns the likelihood of each target by runs; `by_token` as in `score_pairs`.

  Raises:
    UserError: a log-probability is not finite.
  """
  run = members[0]
  likelihoods = score_pairs([member.model for member in members],
                            [member.params for member in members], run.vocabulary,
                            (sources, targets), _longest(run), run.config.decode.batch_size,
                            by_token)
  check_finite(members, (pair.log_prob or 0.0 for pair in likelihoods), itertools.count(1))
  return likelihoods


def _longest(run: Run) -> tuple[int, int]:
  """Returns the most tokens of a source and of a translation by a search."""
  longest = run.config.data.max_length
  return longest, longest + run.config.decode.max_extra_length


def check_finite(runs: Sequence[Run], scores: Iterable[float], numbers: Iterable[int]):
  """Refuses log-probabilities, one for each numbered line, that are not finite.

  Raises:
    UserError: the model has diverged; names the line and the runs.
  """
  for number, score in zip(numbers, scores, strict=False):
    if not math.isfinite(score):
      raise diverged(runs, f'the log-probabilities for line {number} are not finite')
