"""Settings of earlier versions: how a saved config is read today, and what has ended."""

import math
from collections.abc import Mapping
from typing import Any

from absl import logging

from transformer.errors import UserError, shown

_TREES = 'transformer.tools.parse.source:Trees'
_F1 = 'transformer.tools.parse.scores:f1'
_NOISE = 'transformer.tools.noise:source_noise'
_R_DROP = 'transformer.tools.r_drop:r_drop'
_DISTILLATION = 'transformer.tools.distil.objective:distillation'
_R_DROP_BEFORE = 'transformer.training.r_drop:r_drop'
_GONE = 'has ended: docs/configuration.md'
_ANY = object()
# Keys that ended, with the value that changed no update, or `_ANY` if no value did.
_ENDED = {
    'data.alignments': '', 'data.drop_duplicates': False, 'data.drop_identical': False,
    'data.tree_words': _ANY, 'data.vocabulary_pairs': _ANY, 'model.layer_drop': 0.0,
    'model.word_dropout': 0.0, 'optimizer.b1': 0.9, 'optimizer.eps': 1e-9,
    'train.alignment_layer': 0, 'train.alignment_weight': _ANY}
# Keys that became part of another, and what to do today.
_MOVED = {
    'model.encoder_layers': 'is model.num_layers now, and decoder_layers the depth of the other '
                            'stack',
    **dict.fromkeys(('data.upper_case', 'data.title_case', 'data.typing_errors'),
                    f'is a number of data.variations now: ({_NOISE!r}, upper_case, title_case, '
                    f'typing_errors)'),
    'train.r_drop': f'belongs to train.objective now: ({_R_DROP!r}, r_drop)',
    **dict.fromkeys(('train.teachers', 'train.teacher_share', 'train.teacher_temperature'),
                    f'belongs to train.objective now: ({_DISTILLATION!r}, teacher_share, '
                    f'teacher_temperature)'),
    **{f'decode.{name}': f'is a flag of eval.py alone: --{name}'
       for name in ('sample', 'temperature', 'top_k', 'top_p')}}


def as_of_now(tree: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings of a saved run, nested dicts by group, by the names of today.

  A key that came later takes the value that earlier versions behaved by, which may not be its
  default. A key that ended is left out.
  """
  if not all(isinstance(values, Mapping) for group, values in tree.items() if group != 'seed'):
    return dict(tree)  # `Config` refuses it.
  tree = {group: dict(values) if group != 'seed' else values for group, values in tree.items()}
  data, model, optimizer, train, decode = (
      tree.setdefault(group, {}) for group in ('data', 'model', 'optimizer', 'train', 'decode'))
  model.setdefault('attention_bias', 'all')
  if encoder_layers := model.pop('encoder_layers', None):
    decoder_layers = model.get('decoder_layers') or model.get('num_layers', 6)
    model['num_layers'] = encoder_layers
    model['decoder_layers'] = None if decoder_layers == encoder_layers else decoder_layers
  shares = [data.pop(key, 0.0) for key in ('upper_case', 'title_case', 'typing_errors')]
  if any(shares):
    data['variations'] = [[_NOISE, *shares]]
  if data.get('source') == 'trees':
    data['source'] = f'{_TREES}WithWords' if data.get('tree_words') else _TREES
    train['valid_metric'] = train.get('valid_metric') or _F1
  if optimizer.get('clip_norm') == math.inf:
    optimizer['clip_norm'] = 1e38  # No norm is above it, and the optimizer keeps its structure.
  r_drop = train.pop('r_drop', 0.0)
  teachers = train.pop('teachers', ())
  share = train.pop('teacher_share', 0.5)
  temperature = train.pop('teacher_temperature', 1.0)
  objective = train.get('objective', '')
  spec, *numbers = (objective,) if isinstance(objective, str) else objective or ('',)
  if spec == _R_DROP_BEFORE:
    train['objective'] = (_R_DROP, *numbers)
  if teachers:
    train.update(objective=(_DISTILLATION, share, temperature, r_drop), objective_runs=teachers)
  elif r_drop:
    train['objective'] = (_R_DROP, r_drop)
  if decode.get('sample'):
    logging.log_first_n(logging.WARNING, 'decode.sample=True of this run has ended: translations '
                        'are searched for, and drawn with --sample of eval.py', 1)
  for name in (*_ENDED, *_MOVED):
    group, key = name.split('.')
    tree[group].pop(key, None)
  return tree


def check_none_ended(run: Any, tree: Mapping[str, Any]):
  """Refuses to train with the saved settings of a run of which one that changed updates has ended.

  Args:
    run: the directory of the run, for errors.
    tree: its settings, as they were saved.
  """
  for name, without in _ENDED.items():
    group, key = name.split('.')
    value = tree.get(group, {}).get(key, without)
    if without is not _ANY and value != without:
      raise UserError(f'{run} was trained with {name}={shown(value)}, which {_GONE}; the run '
                      f'translates, and no training goes on or begins with its settings; to train '
                      f'on from its weights: --config=FILE --workdir=NEW '
                      f'--config.train.init_from={run}')


def hint_of_ended(name: str) -> str:
  """Returns what to say of a dotted name if its key has ended or moved, and otherwise nothing."""
  return 'it ' + _MOVED.get(name, _GONE) if name in _MOVED or name in _ENDED else ''
