"""What makes a sweep that goes on the same sweep: its settings, its space and its data."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from launch.sweeping.space import UNREAD, Space
from transformer.commands.config_file import changed, plain_settings
from transformer.config import Config
from transformer.runs import run_directory

# Settings that change no evaluation of a trial. A Slurm job sets its own time to save.
_MAY_DIFFER = ('train.grace_seconds', 'train.log_every', 'train.checkpoint_every', 'train.keep',
               *UNREAD)
_PATHS = ('data.dir', 'data.vocabulary', 'data.source_vocabulary')


def about(config: Config, space: Space) -> dict[str, Any]:
  """Returns JSON data about a sweep, to compare it with when it goes on."""
  return {'settings': plain_settings(config), 'space': space.text}


def differences(before: Mapping[str, Any], config: Config, space: Space,
                trials: Sequence[FrozenTrial], runs: Path) -> list[str]:
  """Returns a phrase for each difference to a sweep that would change its trials.

  Args:
    before: `about` of the sweep that was begun.
    config: the settings now.
    space: the search space now.
    trials: the trials so far.
    runs: the folder of their runs.
  """
  old, new = plain_settings(_saved(before['settings'])), plain_settings(config)
  names = [name for name in sorted({*old, *new})
           if old.get(name) != new.get(name) and name not in _MAY_DIFFER]
  if names and set(names) <= set(_PATHS) and _is_same_data(config, trials, runs):
    names = []
  phrases = [f'{name} was {old.get(name)!r}, is {new.get(name)!r}' for name in names]
  if _meaning(before['space']) != _meaning(space.text):
    phrases.append('the search space has changed')
  return phrases


def _saved(settings: Mapping[str, Any]) -> Config:
  """Returns settings by dotted name, of this or an earlier version, as a config of today."""
  tree = {}
  for name, value in settings.items():
    group, _, key = name.rpartition('.')
    (tree.setdefault(group, {}) if group else tree)[key] = value
  return Config.from_saved(tree)


def _meaning(text: str) -> str:
  """Returns a Python program without its comments, docstrings and layout."""
  tree = ast.parse(text)
  for node in ast.walk(tree):
    if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and (
        ast.get_docstring(node, clean=False) is not None):
      del node.body[0]
  return ast.dump(tree)


def _is_same_data(config: Config, trials: Sequence[FrozenTrial], runs: Path) -> bool:
  """Returns whether the paths of a config lead to the text and vocabularies of its trials."""
  # Imported here: a sweep reads no text unless it has moved.
  from transformer.data.corpora import open_corpora
  from transformer.data.vocabulary.adoption import adopt

  read = {}
  for trial in trials:
    settings, run = trial.user_attrs.get('settings'), runs / str(trial.number)
    if not settings or trial.state == TrialState.FAIL:
      continue
    if not (run / run_directory.RUN).exists():  # It is on another machine.
      return False
    trained = run_directory.read_fingerprints(run)
    data = changed(config, settings).data
    if data not in read:
      read[data] = (open_corpora(data).fingerprints().items(), {
          adopt(path).fingerprint
          for path in (data.vocabulary, data.source_vocabulary) if path})
    text, vocabularies = read[data]
    if not (text <= trained.items() and vocabularies <= set(trained.values())):
      return False
  return True
