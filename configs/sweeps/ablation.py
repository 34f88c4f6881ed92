r"""Position encodings and pre- or post-norm, with three seeds: all 18 combinations.

  python launch/sweep.py --config=configs/text.py --search_space=configs/sweeps/ablation.py \
      --workdir=runs/ablation --trials=18 --config.data.dir=DIR --config.train.keep=1

This sweep has not been run yet. Each trial takes as long as a run of the config.
"""

import optuna


def suggest(trial):
  """Returns the settings of a trial."""
  return {
    'model.positions': trial.suggest_categorical(
      'positions', ['sinusoidal', 'rotary', 'relative']
    ),
    'model.norm_position': trial.suggest_categorical('norm_position', ['pre', 'post']),
    'seed': trial.suggest_categorical('seed', [1, 2, 3]),
  }


def sampler(seed):
  """Returns a sampler that tries every combination once."""
  return optuna.samplers.BruteForceSampler(seed=seed)


def pruner():
  """Returns a pruner that never prunes."""
  return optuna.pruners.NopPruner()
