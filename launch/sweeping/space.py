"""Loads and checks a search space: a small Python file that defines how trials differ.

The file defines these names. All other names must be imported functions, classes or modules, or
begin with an underscore.

  suggest(trial)  Returns the settings of a trial as a dict, such as {'model.dropout': 0.1}, with
                  values sampled by trial.suggest_float, .suggest_int and .suggest_categorical.
  objective       'valid/bleu' (the default), 'valid/chrf', 'valid/f1' or 'valid/loss'; the best
                  evaluation of a run counts. 'valid/chrf' needs --config.train.best_by=chrf, and
                  'valid/f1' needs a function of --config.train.valid_metric that returns f1.
  pruner()        Returns one of optuna.pruners; default: MedianPruner().
  sampler(seed)   Returns one of optuna.samplers; default: TPESampler(seed=seed).
"""

import runpy
import types
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import optuna

from launch.config_file import with_settings
from launch.sweeping.storage import DATABASE_ERRORS
from transformer.config import Config, type_of_setting
from transformer.config_fields import coerce
from transformer.errors import UserError, short_repr, type_and_message

# The metrics by which trials may be compared, each with the direction of improvement.
OBJECTIVES = {
  'valid/bleu': 'maximize',
  'valid/f1': 'maximize',
  'valid/chrf': 'maximize',
  'valid/loss': 'minimize',
}
# Keys that change the measurement of a run, not its quality.
_MEASURE = (
  'data.source',
  'data.tfds_name',
  'data.dir',
  'data.valid',
  'data.source_language',
  'data.target_language',
  'decode.bleu_tokenize',
)
# Keys that change the segmentation into tokens, or which tokens are counted.
_TOKENS = (
  'data.vocabulary_size',
  'data.vocabulary',
  'data.train',
  'data.shared_vocabulary',
  'data.source_vocabulary_size',
  'data.source_vocabulary',
  'data.vocabulary_kind',
  'data.split_digits',
  'data.normalization',
  'data.user_defined_symbols',
  'data.max_length',
  'train.init_from',
  'train.objective_runs',
)
UNREAD = ('decode.beam_size', 'decode.alpha')  # Validation uses greedy search.
_NAMES = ('suggest', 'objective', 'pruner', 'sampler')
_DRAWS = 20
_FAILED = '%s: suggest(trial) failed: %s'


class Space(NamedTuple):
  """A search space: its file name, the text of the file, and the names that the file defines."""

  filename: str
  text: str
  suggest: Callable[[optuna.trial.Trial], dict[str, Any]]
  objective: str
  pruner: Callable[[], optuna.pruners.BasePruner]
  sampler: Callable[[int], optuna.samplers.BaseSampler]


def load(filename: str) -> Space:
  """Runs the file of a search space; raises `UserError` if its definitions are invalid."""
  try:
    text = Path(filename).read_text(encoding='utf-8')
    defined = runpy.run_path(filename)
  except OSError as error:
    raise UserError(
      f'--search_space must be the file of a search space, such as '
      f'configs/sweeps/quickstart.py; {filename}: {error.strerror}'
    ) from error
  except (Exception, SystemExit) as error:  # A program may raise anything.
    raise UserError(
      f'{filename} cannot be loaded: {type_and_message(error)}'
    ) from error
  _check_names(filename, defined)
  objective = defined.get('objective', 'valid/bleu')
  if not isinstance(objective, str) or objective not in OBJECTIVES:
    raise UserError(
      f'{filename}: objective must be one of {", ".join(OBJECTIVES)}; got {short_repr(objective)}'
    )
  space = Space(
    filename,
    text,
    defined['suggest'],
    objective,
    defined.get('pruner', optuna.pruners.MedianPruner),
    defined.get('sampler', lambda seed: optuna.samplers.TPESampler(seed=seed)),
  )
  for call, kind, make in (
    ('pruner()', optuna.pruners.BasePruner, space.pruner),
    ('sampler(seed)', optuna.samplers.BaseSampler, lambda: space.sampler(0)),
  ):
    try:
      instance = make()
    except Exception as error:
      raise UserError(
        f'{filename}: {call} failed: {type_and_message(error)}'
      ) from error
    if not isinstance(instance, kind):
      raise UserError(
        f'{filename}: {call} must return one of optuna.{call.partition("(")[0]}s; got '
        f'{short_repr(instance)}'
      )
  return space


def check(space: Space, config: Config, overrides: Collection[str]):
  """Samples a few trials, and raises `UserError` if all are invalid; single ones may fail later.

  `overrides` are the settings of the command line.
  """
  if space.objective == 'valid/f1' and not config.train.valid_metric:
    raise UserError(
      f"{space.filename}: objective 'valid/f1' is computed only by a function of "
      '--config.train.valid_metric=MODULE:FUNCTION that returns f1; got none'
    )
  measure = config.train.best_by.rpartition('/')[2]
  if space.objective == 'valid/chrf' and measure != 'chrf':
    raise UserError(
      f"{space.filename}: objective 'valid/chrf' is computed only with "
      f'--config.train.best_by=chrf; got {short_repr(config.train.best_by)}'
    )
  study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
  refused = []
  for _ in range(_DRAWS):
    try:
      with warnings.catch_warnings():
        # A storage does not return choices of other types unchanged; Optuna only warns about this.
        warnings.filterwarnings('error', message='Choices for a categorical')
        settings = sample_settings(space, study.ask())
    except OSError as error:  # From suggest: this study is in memory.
      raise UserError(_FAILED % (space.filename, type_and_message(error))) from error
    for name in settings:
      if name in overrides:
        raise UserError(
          f'{space.filename} sets {name} for each trial; remove --config.{name}'
        )
    try:
      trial = with_settings(config, settings)
    except UserError as error:
      refused.append(error)
      continue
    ignored = trial.optimizer.ignored_rate_key
    # If trials have different schedules, each key may be used by some of them.
    if f'optimizer.{ignored}' in settings and 'optimizer.schedule' not in settings:
      raise UserError(
        f'{space.filename} searches optimizer.{ignored}, which has no effect with '
        f'optimizer.schedule={trial.optimizer.schedule}; set --config.optimizer.schedule'
      )
  if len(refused) == _DRAWS:
    raise UserError(
      f'{space.filename}: the config rejects all {_DRAWS} trials that were sampled to check it; '
      f'the first error: {refused[0]}'
    )


def sample_settings(space: Space, trial: optuna.trial.Trial) -> dict[str, Any]:
  """Returns the sampled settings of a trial, by dotted name.

  Raises:
    UserError: `suggest` fails, or returns an invalid value.
    OSError, or one of `DATABASE_ERRORS`: the sampled values could not be stored.
  """
  try:
    settings = space.suggest(trial)
  except (OSError, *DATABASE_ERRORS):
    raise  # The storage stores sampled values; the error is not in the search space.
  except UserWarning as error:
    raise UserError(
      f'{space.filename}: {type_and_message(error)}; let suggest sample a name, and look up the '
      'value by name'
    ) from error
  except Exception as error:
    raise UserError(_FAILED % (space.filename, type_and_message(error))) from error
  rule = f"{space.filename}: suggest(trial) must return a dict such as {{'model.dropout': 0.1}}"
  if (
    not isinstance(settings, dict)
    or not settings
    or not all(isinstance(name, str) for name in settings)
  ):
    raise UserError(f'{rule}; got {short_repr(settings)}')
  for name, value in settings.items():
    try:
      coerce(type_of_setting(name), value, f'config.{name}')
    except UserError as error:
      raise UserError(f'{space.filename}: {error}') from error
    if name in _MEASURE:
      raise UserError(
        f'{space.filename}: trials must be comparable, so {name} must be the same for all; set '
        f'it with --config.{name}'
      )
    if name in UNREAD:
      raise UserError(
        f'{space.filename}: evaluations use greedy search, so {name} has no effect on them; '
        'choose it afterwards, with eval.py on the validation set'
      )
    if name in _TOKENS and space.objective == 'valid/loss':
      raise UserError(
        f'{space.filename}: valid/loss is the loss per token, and {name} changes the tokens, so '
        "valid/loss cannot compare trials; set objective = 'valid/bleu'"
      )
  return settings


def _check_names(filename: str, defined: dict[str, Any]):
  """Raises `UserError` if `suggest` is missing, or a name is unknown and may be a typo."""
  for name, value in defined.items():
    # An imported name is a module, or an object whose `__module__` is another module.
    is_local = getattr(value, '__module__', defined['__name__']) == defined['__name__']
    if is_local and not (
      name in _NAMES or name.startswith('_') or isinstance(value, types.ModuleType)
    ):
      raise UserError(
        f'{filename} defines {name}, which a sweep does not use; the names are '
        f'{", ".join(_NAMES)}; start custom names with _'
      )
  for name in _NAMES:
    if name != 'objective' and name in defined and not callable(defined[name]):
      raise UserError(
        f'{filename}: {name} must be a function; got {short_repr(defined[name])}'
      )
  if 'suggest' not in defined:
    raise UserError(
      f'{filename} must define suggest(trial), which returns a dict such as '
      f"{{'model.dropout': trial.suggest_float('dropout', 0.0, 0.5)}}"
    )
