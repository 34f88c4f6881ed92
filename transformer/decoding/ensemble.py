"""Loads the runs of an ensemble, which must fit each other."""

import os
from collections.abc import Iterable

from transformer.data.vocabulary.vocabularies import fingerprints
from transformer.decoding.pairs import longest
from transformer.errors import UserError
from transformer.runs.loading import Run, load_run
from transformer.settings import check_range


def load_members(
  workdir: str | os.PathLike,
  checkpoint: str,
  average: int,
  ensemble: Iterable[str | os.PathLike],
  batch_size: int | None,
) -> list[Run]:
  """Loads a run, and the others of its ensemble, which take their best or latest checkpoint.

  Raises:
    UserError: a directory holds no run, too few checkpoints, or a run that does not fit the first.
  """
  check_range('average', average, least=1)
  run = load_run(workdir, checkpoint, average, batch_size)
  members = [run]
  for folder in [ensemble] if isinstance(ensemble, str | os.PathLike) else ensemble:
    chosen = 'latest' if checkpoint == 'latest' else 'best'
    member = load_run(folder, chosen, average, run.config.decode.batch_size)
    _check_member(run, member, folder)
    members.append(member)
  return members


def _check_member(run: Run, member: Run, folder: str | os.PathLike):
  """Raises `UserError` if a run cannot be in an ensemble with the first one."""
  if fingerprints(member.vocabulary) != fingerprints(run.vocabulary):
    raise UserError(
      f'the runs of an ensemble must have the same vocabulary, and {folder} has '
      f'another one; train it with the same text and config.data, or leave it out'
    )
  _, most = longest(run.config)
  model = member.config.model
  if model.positions == 'learned' and model.max_positions < most:
    raise UserError(
      f'the runs of an ensemble must have positions for {most} tokens, as '
      f'data.max_length and decode.max_extra_length of the first run say; '
      f'{folder} learned {model.max_positions}; leave it out, or begin with it'
    )
