"""Loads the runs of an ensemble, which must be compatible."""

import os
from collections.abc import Iterable

from transformer.config_fields import check_range
from transformer.data.vocabulary.vocabularies import fingerprints
from transformer.decoding.batching import max_lengths
from transformer.errors import UserError
from transformer.runs.loading import Run, load_run


def load_ensemble(
  workdir: str | os.PathLike,
  checkpoint: str,
  average: int,
  ensemble: Iterable[str | os.PathLike],
  batch_size: int | None,
) -> list[Run]:
  """Loads a run at `checkpoint`, and the other members of its ensemble.

  The others use their latest checkpoint if `checkpoint` is `latest`, or else their best.

  Raises:
    UserError: a directory has no run, too few checkpoints, or a run incompatible with the first.
  """
  check_range('average', average, min=1)
  run = load_run(workdir, checkpoint, average, batch_size)
  members = [run]
  _, max_length = max_lengths(run.config)
  for folder in [ensemble] if isinstance(ensemble, str | os.PathLike) else ensemble:
    member_checkpoint = 'latest' if checkpoint == 'latest' else 'best'
    member = load_run(folder, member_checkpoint, average, run.config.decode.batch_size)
    if fingerprints(member.vocabulary) != fingerprints(run.vocabulary):
      raise UserError(
        f'the runs of an ensemble must share a vocabulary, and {folder} has a different one; train '
        'it on the same dataset with the same config.data, or remove it'
      )
    model = member.config.model
    if model.positions == 'learned' and model.max_positions < max_length:
      raise UserError(
        f'the runs of an ensemble must have positions for {max_length} tokens, as data.max_length '
        f'and decode.max_extra_length of the first run require; {folder} learned '
        f'{model.max_positions}; remove it, or pass it as the first run'
      )
    members.append(member)
  return members
