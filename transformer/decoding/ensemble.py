"""Translation and scoring by a run, or by an ensemble of runs with averaged probabilities."""

import itertools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
from absl import logging

from transformer.data.batch import EOS_ID
from transformer.data.vocabulary.vocabularies import model_files
from transformer.decoding.config import DecodeConfig
from transformer.decoding.constraint import FREE, Constraint
from transformer.decoding.likelihoods import make_scorer, pair_batches
from transformer.decoding.translator import Translation, Translator
from transformer.errors import UserError
from transformer.runs.loading import Run, diverged, load_run

_LINES_SHOWN = 5


class Likelihood(NamedTuple):
  """The likelihood of a translation, whose end token counts."""

  log_prob: float | None  # a natural logarithm; None if the pair was too long
  tokens: int
  pieces: tuple[tuple[str, float], ...] = ()  # with their logarithms, if they were wanted


def load_ensemble(run: Run, others: Sequence[str | os.PathLike], checkpoint: str = 'best',
                  average: int = 1) -> list[Run]:
  """Loads other runs, and returns all, `run` first; its config says how text is translated.

  The checkpoint and the average are as in `load_run`, for each of the others.

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

  On a CPU each core takes other batches; accelerators share each batch. The other arguments, and
  the errors, are those of `Translator`.
  """
  run = members[0]
  return Translator([member.model for member in members], run.vocabulary, decode,
                    run.config.data.max_length, seed, nbest,
                    None if jax.default_backend() == 'cpu' else run.mesh)


def translate_with(members: Sequence[Run], translate: Translator, lines: Sequence[str],
                   first: int = 0, constraint: Constraint = FREE,
                   progress: Callable[[int], Any] = lambda count: None) -> list[Translation]:
  """Translates lines with runs, as `Translator` does.

  The translator may have been built for other runs with the same config.

  Raises:
    UserError: a log-probability is not finite, or as `Translator` raises it.
  """
  answers = translate([member.params for member in members], lines, first, constraint, progress)
  check_finite(members, (answer.score for answer in answers), itertools.count(first + 1))
  return answers


def score_with(members: Sequence[Run], sources: Sequence[str], targets: Sequence[str],
               by_token: bool = False) -> list[Likelihood]:
  """Returns the likelihood of each target by runs, with its pieces if `by_token`.

  A pair with a side that is longer than in a search is not scored; a warning names its line.

  Raises:
    UserError: a log-probability is not finite.
  """
  run, most = members[0], _longest(members[0])
  languages = run.vocabulary.source, run.vocabulary.target
  encoded = [[[*ids, EOS_ID] for ids in language.encode_batch(lines)]
             for language, lines in zip(languages, (sources, targets), strict=True)]
  likelihoods = [Likelihood(None, len(ids)) for ids in encoded[1]]
  too_long = set()
  for side, name, limit in zip(encoded, ('source', 'reference'), most, strict=True):
    longer = [number for number, ids in enumerate(side) if len(ids) > limit]
    too_long.update(longer)
    if longer:
      shown = [f'line {number + 1} ({len(side[number])} tokens)' for number in longer]
      if len(shown) > _LINES_SHOWN:
        shown[_LINES_SHOWN:] = ['…']
      logging.warning('%d lines of the %s have more than %d tokens and get nan: %s', len(longer),
                      name, limit, ', '.join(shown))
  scorer = jax.jit(make_scorer([member.model for member in members], by_token))
  params = tuple(member.params for member in members)
  chosen = [index for index in range(len(likelihoods)) if index not in too_long]
  for indices, *sides in pair_batches(*encoded, chosen, most, run.config.decode.batch_size):
    log_probs = jax.device_get(scorer(params, *sides))
    for index, log_prob in zip(indices, log_probs, strict=False):
      ids = encoded[1][index]
      scores = log_prob[:len(ids)].tolist() if by_token else []
      likelihoods[index] = Likelihood(
          math.fsum(scores) if by_token else float(log_prob), len(ids),
          tuple(zip(map(languages[1].piece, ids), scores, strict=False)))
  check_finite(members, (pair.log_prob or 0.0 for pair in likelihoods), itertools.count(1))
  return likelihoods


def _longest(run: Run) -> tuple[int, int]:
  """Returns the most tokens of a source and of a translation by a search."""
  longest = run.config.data.max_length
  return longest, longest + run.config.decode.max_extra_length


def check_finite(runs: Sequence[Run], scores: Iterable[float], numbers: Iterable[int]):
  """Refuses log-probabilities of numbered lines that are not finite: the runs have diverged."""
  for number, score in zip(numbers, scores, strict=False):
    if not math.isfinite(score):
      raise diverged(runs, f'the log-probabilities for line {number} are not finite')
