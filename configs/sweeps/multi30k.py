r"""Regularization and learning rate on Multi30k, in half the forward teacher's training steps.

  python launch/sweep.py --config=configs/multi30k.py:forward \
      --search_space=configs/sweeps/multi30k.py --workdir=runs/multi30k_sweep --trials=40 \
      --config.data.dir=DIR --config.train.steps=2000 --config.train.eval_every=250 \
      --config.train.keep=1

This sweep has not been run yet. Estimated from the training time of configs/multi30k.py on two CPU
cores, a trial that is not pruned takes half an hour, or an hour with R-Drop.
"""

import optuna


def suggest(trial):
  """Returns the settings of a trial."""
  alpha = trial.suggest_categorical('r_drop', [0.0, 1.0, 5.0])
  rate = trial.suggest_categorical('bpe_dropout', [0.0, 0.05, 0.1])
  return {
    'train.objective': ('transformer.tools.r_drop:r_drop', alpha) if alpha else '',
    'model.dropout': trial.suggest_float('dropout', 0.1, 0.5, step=0.05),
    'data.augmentations': (('transformer.tools.subwords:bpe_dropout', rate),)
    if rate
    else (),
    'optimizer.peak_learning_rate': trial.suggest_float(
      'peak_learning_rate', 2e-3, 2e-2, log=True
    ),
    'optimizer.warmup_steps': trial.suggest_int('warmup_steps', 100, 500, step=100),
  }


def pruner():
  """Returns a pruner of trials below the median, after 1,000 training steps and five trials."""
  return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1000)
