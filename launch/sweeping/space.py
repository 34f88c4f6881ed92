"""A search space: a small Python file that says what a trial may be, and what it is measured by.

It defines

  suggest(trial)  returns a dict of what a trial sets, such as {'model.dropout': 0.1}; the values
                  are drawn by trial.suggest_float, .suggest_int and .suggest_categorical
  objective       'valid/bleu', unless told, or 'valid/loss'; the best of a run's evaluations counts
  pruner()        returns one of optuna.pruners, which ends trials early; MedianPruner() unless told
  sampler(seed)   returns one of optuna.samplers, which draws; TPESampler(seed=seed) unless told

and nothing else but what it imports and what begins with an underscore.
"""

import difflib
import runpy
import types
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import optuna

from launch.sweeping.config_file import changed
from transformer.config import Config, check_value
from transformer.errors import UserError

# What a trial is measured by, and what is better.
OBJECTIVES = {'valid/bleu': 'maximize', 'valid/loss': 'minimize'}
# Keys that change what is measured, and not how well a run does.
_MEASURE = ('data.source', 'data.name', 'data.dir', 'data.valid', 'data.source_language',
            'data.target_language', 'decode.bleu_tokenize')
# Keys that change what a token is, or which of them are counted.
_TOKENS = ('data.vocabulary_size', 'data.vocabulary_pairs', 'data.train', 'data.max_length',
           'train.init_from')
_NAMES = ('suggest', 'objective', 'pruner', 'sampler')
_DRAWS = 20


class Space(NamedTuple):
  """A search space.

  Attributes:
    filename: where it comes from.
    text: what the file says.
    suggest: gives the settings of a trial, by dotted name; called by `draw`.
    objective: a key of `OBJECTIVES`.
    pruner: gives what ends trials early.
    sampler: gives, by a seed, what draws.
  """

  filename: str
  text: str
  suggest: Callable[[optuna.trial.Trial], dict[str, Any]]
  objective: str
  pruner: Callable[[], optuna.pruners.BasePruner]
  sampler: Callable[[int], optuna.samplers.BaseSampler]

  @property
  def direction(self) -> str:
    """`maximize` or `minimize`."""
    return OBJECTIVES[self.objective]


def load(filename: str) -> Space:
  """Runs the file of a search space.

  Raises:
    UserError: there is none, or what it defines is not what it should.
  """
  try:
    text = Path(filename).read_text(encoding='utf-8')
    found = runpy.run_path(filename)
  except OSError as error:
    raise UserError(f'--sweep must be the file of a search space, such as '
                    f'configs/sweeps/quickstart.py; {filename}: {error.strerror}') from error
  except (Exception, SystemExit) as error:  # It is a program, and may go wrong in any way.
    raise UserError(f'{filename} cannot be loaded: {_told(error)}') from error
  _check_names(filename, found)
  objective = found.get('objective', 'valid/bleu')
  if objective not in OBJECTIVES:
    raise UserError(f'{filename}: objective must be one of {", ".join(OBJECTIVES)}; got '
                    f'{objective!r}')
  space = Space(filename, text, found['suggest'], objective,
                found.get('pruner', optuna.pruners.MedianPruner),
                found.get('sampler', lambda seed: optuna.samplers.TPESampler(seed=seed)))
  for name, kind, arguments in (('pruner', optuna.pruners.BasePruner, ()),
                                ('sampler', optuna.samplers.BaseSampler, (0,))):
    try:
      made = getattr(space, name)(*arguments)
    except Exception as error:
      raise UserError(f'{filename}: {name}({"seed" if arguments else ""}) failed: '
                      f'{_told(error)}') from error
    if not isinstance(made, kind):
      raise UserError(f'{filename}: {name}({"seed" if arguments else ""}) must return one of '
                      f'optuna.{name}s; got {made!r}')
  return space


def check(space: Space, config: Config, taken: Collection[str]):
  """Draws a few trials, so that a mistake shows before any is trained.

  Args:
    space: from `load`.
    config: what trials change.
    taken: dotted names of what the command line sets.

  Raises:
    UserError: says what is wrong with what `suggest` returns; where some of it does not go with
      the config, those trials will say so.
  """
  study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
  refused = []
  for _ in range(_DRAWS):
    settings = draw(space, study.ask())
    for name in settings:
      if name in taken:
        raise UserError(f'{space.filename} sets {name} for each trial; leave --config.{name} out')
    try:
      changed(config, settings)
    except UserError as error:
      refused.append(error)
  if len(refused) == _DRAWS:
    raise UserError(f'{space.filename}: the config takes none of {_DRAWS} trials: {refused[0]}')


def draw(space: Space, trial: optuna.trial.Trial) -> dict[str, Any]:
  """What a trial sets, by dotted name; each is a key of a config, with a value of its type.

  Raises:
    UserError: `suggest` fails, or does not return that.
  """
  try:
    settings = space.suggest(trial)
  except Exception as error:
    raise UserError(f'{space.filename}: suggest(trial) failed: {_told(error)}') from error
  wanted = f'{space.filename}: suggest(trial) must return a dict such as {{\'model.dropout\': 0.1}}'
  if not isinstance(settings, dict) or not settings:
    raise UserError(f'{wanted}; got {settings!r}')
  for name, value in settings.items():
    if not isinstance(name, str):
      raise UserError(f'{wanted}; got the name {name!r}')
    try:
      check_value(name, value)
    except UserError as error:
      raise UserError(f'{space.filename}: {error}') from error
    if name in _MEASURE:
      raise UserError(f'{space.filename}: trials must be measured alike, so {name} must be the '
                      f'same for all; set it with --config.{name}')
    if name in _TOKENS and space.objective == 'valid/loss':
      raise UserError(f'{space.filename}: valid/loss is that of a token, which {name} changes, so '
                      f'trials cannot be compared by it; search with objective = \'valid/bleu\'')
  return settings


def _check_names(filename: str, found: dict[str, Any]):
  """Refuses a file without `suggest`, or with a name that means nothing, as a mistyped one does."""
  for name, value in found.items():
    # What is imported is a module, or knows another module that it is of.
    ours = getattr(value, '__module__', found['__name__']) == found['__name__']
    if ours and not (name in _NAMES or name.startswith('_') or isinstance(value, types.ModuleType)):
      nearest = difflib.get_close_matches(name.lower(), _NAMES, n=1)
      hint = f'did you mean {nearest[0]}?' if nearest else f'the names are {", ".join(_NAMES)}'
      raise UserError(f'{filename} defines {name}, which means nothing to a sweep; {hint}; let '
                      f'names of your own begin with _')
  for name in _NAMES:
    if name != 'objective' and name in found and not callable(found[name]):
      raise UserError(f'{filename}: {name} must be a function; got {found[name]!r}')
  if 'suggest' not in found:
    raise UserError(f'{filename} must define suggest(trial), which returns a dict such as '
                    f'{{\'model.dropout\': trial.suggest_float(\'dropout\', 0.0, 0.5)}}')


def _told(error: BaseException) -> str:
  """An error in a line."""
  return ' '.join(f'{type(error).__name__}: {error}'.split())
