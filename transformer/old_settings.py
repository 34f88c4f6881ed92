"""Settings of earlier versions: how a saved config is read today, and what has ended."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from absl import logging

from transformer.errors import UserError

_TREES, _F1 = 'transformer.tools.parse.source:Trees', 'transformer.tools.parse.scores:f1'
_NOISE = 'transformer.tools.noise:source_noise'
_R_DROP = 'transformer.training.r_drop:r_drop'
_DISTILLATION = 'transformer.tools.distil.objective:distillation'
_ANY = object()


class _Ended(NamedTuple):
  """A key that ended.

  Attributes:
    without: the value that changed no update, or `_ANY` if no value did.
    advice: what to do today; it follows `it `.
  """

  without: Any
  advice: str


_GONE = 'has ended: docs/configuration.md'
_ENDED = {
    'data.tree_words': _Ended(_ANY, 'has ended: docs/parsing.md'),
    'data.alignments': _Ended('', 'has ended: docs/alignments.md'),
    'train.alignment_layer': _Ended(0, 'has ended: docs/alignments.md'),
    'train.alignment_weight': _Ended(_ANY, 'has ended: docs/alignments.md'),
    'data.vocabulary_pairs': _Ended(_ANY, _GONE), 'data.drop_identical': _Ended(False, _GONE),
    'data.drop_duplicates': _Ended(False, _GONE), 'model.layer_drop': _Ended(0.0, _GONE),
    'model.word_dropout': _Ended(0.0, _GONE), 'optimizer.b1': _Ended(0.9, _GONE),
    'optimizer.eps': _Ended(1e-9, _GONE),
    **{f'decode.{name}': _Ended(_ANY, f'is a flag of eval.py alone: --{name}')
       for name in ('sample', 'temperature', 'top_k', 'top_p')}}
# Keys that became part of another.
_MOVED = {
    'model.encoder_layers': 'is model.num_layers now, and decoder_layers the depth of the other '
                            'stack',
    **dict.fromkeys(('data.upper_case', 'data.title_case', 'data.typing_errors'),
                    f'is a number of data.variations now: ({_NOISE!r}, upper_case, title_case, '
                    f'typing_errors)'),
    'train.r_drop': f'belongs to train.objective now: ({_R_DROP!r}, r_drop)',
    **dict.fromkeys(('train.teachers', 'train.teacher_share', 'train.teacher_temperature'),
                    f'belongs to train.objective now: ({_DISTILLATION!r}, teacher_share, '
                    f'teacher_temperature)')}


def as_of_now(tree: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings of a saved run by the names of today.

  Args:
    tree: nested dicts by group. A key that came later takes the value that earlier versions
      behaved by, which may not be its default. A key that ended is left out.
  """
  tree = {group: dict(values) if isinstance(values, Mapping) else values
          for group, values in ({'model': {}} | dict(tree)).items()}
  data, train, model = (values if isinstance(values := tree.get(group), dict) else {}
                        for group in ('data', 'train', 'model'))
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
  r_drop, teachers, share, temperature = (train.pop(key, without) for key, without in (
      ('r_drop', 0.0), ('teachers', ()), ('teacher_share', 0.5), ('teacher_temperature', 1.0)))
  if teachers:
    train.update(objective=(_DISTILLATION, share, temperature, r_drop), objective_runs=teachers)
  elif r_drop:
    train['objective'] = (_R_DROP, r_drop)
  decode = tree.get('decode')
  if isinstance(decode, dict) and decode.get('sample'):
    logging.log_first_n(logging.WARNING, 'decode.sample=True of this run has ended: translations '
                        'are searched for, and drawn with --sample of eval.py', 1)
  for name in _ENDED:
    group, key = name.split('.')
    if isinstance(tree.get(group), dict):
      tree[group].pop(key, None)
  return tree


def check_none_ended(run: Any, tree: Mapping[str, Any]):
  """Refuses to train with settings of a run of which one has ended.

  Args:
    run: the directory of the run, for errors.
    tree: its settings, as they were saved.

  Raises:
    UserError: a setting that changed the run's updates has ended.
  """
  for name, (without, advice) in _ENDED.items():
    group, key = name.split('.')
    value = tree.get(group, {}).get(key, without)
    if without is not _ANY and value != without:
      raise UserError(f'{run} was trained with {name}={value!r}, which {advice}; the run '
                      f'translates, and no training goes on or begins with its settings; to train '
                      f'on from its weights: --config=FILE --workdir=NEW '
                      f'--config.train.init_from={run}')


def hint_of_ended(name: str) -> str:
  """Returns what to say of a dotted name if its key has ended or moved, and otherwise nothing."""
  advice = _ENDED[name].advice if name in _ENDED else _MOVED.get(name)
  return f'it {advice}' if advice else ''
