"""Settings of earlier versions: how a saved config is read today, and what has ended."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformer.errors import UserError

# How runs behaved before there was a key for it, where that is not the key's default.
_BEFORE = {'model': {'attention_bias': 'all'}}
# A source that became a class: by `data.tree_words`, which was its setting, and its metric.
_PARSE = 'transformer.tools.parse'
_TREES = {False: f'{_PARSE}.source:Trees', True: f'{_PARSE}.source:TreesWithWords'}
_F1 = f'{_PARSE}.scores:f1'
# Keys that ended: the value that was without effect, and the page that says what ended. Any value
# is without effect where it is None.
_ENDED = {
    'data.tree_words': (None, 'docs/parsing.md'),
    'data.alignments': ('', 'docs/alignments.md'),
    'train.alignment_layer': (0, 'docs/alignments.md'),
    'train.alignment_weight': (None, 'docs/alignments.md'),
}
# Settings that are numbers of a variation today, in its order.
_SHARES = ('upper_case', 'title_case', 'typing_errors')
_NOISE = 'transformer.tools.noise:source_noise'
# R-Drop and teachers had keys of their own: each key with the value without effect.
_OWN_KEYS = {'r_drop': 0.0, 'teachers': (), 'teacher_share': 0.5, 'teacher_temperature': 1.0}
_R_DROP = 'transformer.training.r_drop:r_drop'
_DISTILLATION = 'transformer.tools.distil.objective:distillation'


def as_of_now(tree: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings of a saved run by the names of today.

  Args:
    tree: nested dicts by group. A key that came later takes the value that earlier versions
      behaved by, which may not be its default. A key that ended is left out.
  """
  tree = dict(tree)
  if isinstance(train := tree.get('train'), Mapping):
    own = {key: train.get(key, without) for key, without in _OWN_KEYS.items()}
    tree['train'] = {key: train[key] for key in train if key not in own} | _objective(**own)
  for group, values in _BEFORE.items():
    if isinstance(tree.get(group, {}), Mapping):
      tree[group] = values | dict(tree.get(group, {}))
  if isinstance(tree.get('data'), Mapping):
    data = dict(tree['data'])
    shares = [data.pop(key, 0.0) for key in _SHARES]
    tree['data'] = {**data, 'variations': [[_NOISE, *shares]]} if any(shares) else data
  data, train = tree.get('data'), tree.get('train', {})
  if isinstance(data, Mapping) and data.get('source') == 'trees' and isinstance(train, Mapping):
    tree['data'] = {**data, 'source': _TREES[bool(data.get('tree_words'))]}
    tree['train'] = {**train, 'valid_metric': train.get('valid_metric') or _F1}
  for name in _ENDED:
    group, key = name.split('.')
    if isinstance(tree.get(group), Mapping):
      tree[group] = {own: value for own, value in tree[group].items() if own != key}
  return tree


def _objective(r_drop: float, teachers: Sequence[str], teacher_share: float,
               teacher_temperature: float) -> dict[str, Any]:
  """Returns the objective of today for the keys of earlier versions."""
  if teachers:
    return {'objective': (_DISTILLATION, teacher_share, teacher_temperature, r_drop),
            'objective_runs': teachers}
  return {'objective': (_R_DROP, r_drop)} if r_drop else {}


def check_none_ended(run: Any, tree: Mapping[str, Any]):
  """Refuses to train with settings of a run of which one has ended.

  Args:
    run: the directory of the run, for errors.
    tree: its settings, as they were saved.

  Raises:
    UserError: a setting that changed the run's updates has ended.
  """
  for name, (without, page) in _ENDED.items():
    group, key = name.split('.')
    value = tree.get(group, {}).get(key, without)
    if without is not None and value != without:
      raise UserError(f'{run} was trained with {name}={value!r}, which has ended ({page}): the run '
                      f'translates, and no training goes on or begins with its settings; to train '
                      f'on from its weights: --config=FILE --workdir=NEW '
                      f'--config.train.init_from={run}')


def hint_of_ended(name: str) -> str:
  """Returns what to say of a dotted name if its key has ended or moved, and otherwise nothing."""
  if name in [f'data.{key}' for key in _SHARES]:
    return f'it is a number of data.variations now: (({_NOISE!r}, {", ".join(_SHARES)}),)'
  if name.removeprefix('train.') in _OWN_KEYS:
    spec, numbers = ((_R_DROP, 'r_drop') if name == 'train.r_drop'
                     else (_DISTILLATION, 'teacher_share, teacher_temperature'))
    return f'it belongs to train.objective now: ({spec!r}, {numbers})'
  return f'it has ended, as {_ENDED[name][1]} says' if name in _ENDED else ''
