"""Settings have known names, types and values; everything else is rejected in one line."""

import json

import ml_collections
import pytest

from transformer.config import Config, flatten, type_of_setting
from transformer.errors import UserError
from transformer.training.config import MeshConfig

TEXT = {'source': 'text', 'dir': 'somewhere'}
NAN, INF = float('nan'), float('inf')
LONG = 'x' * 10_000


def nest(name, value):
  """Returns a dotted name, such as `model.norm_position`, and a value as nested dicts."""
  for part in reversed(name.split('.')):
    value = {part: value}
  return value


def reject(tree, *facts):
  with pytest.raises(UserError) as raised:
    Config.from_dict(tree)
  message = str(raised.value)
  assert '\n' not in message
  for fact in facts:
    assert fact in message, message


@pytest.mark.parametrize(
  ('name', 'nearest'),
  [
    ('model.num_head', 'model.num_heads'),
    ('model.NUM_HEADS', 'the keys there are num_layers, '),
    ('optimizer.peak_lr', 'optimizer.peak_learning_rate'),
    ('train.step', 'train.steps'),
    ('data.vocab_size', 'data.vocabulary_size'),
    ('modle', 'model'),
    ('sead', 'seed'),
    ('xyzzy', 'the keys there are data, model, optimizer, train, decode'),
  ],
)
def test_an_unknown_name_names_the_nearest(name, nearest):
  reject(nest(name, {}), f'there is no key config.{name}; ', nearest)


@pytest.mark.parametrize(
  ('name', 'value', 'wanted'),
  [
    *(
      ('model.num_heads', value, 'of type int') for value in ('8', True, 8.0, None, [3])
    ),
    *(('model.dropout', value, 'of type float') for value in ('0.1', False, None)),
    ('model.norm_position', None, 'of type str'),
    ('model.tie_output', 1, 'of type bool'),
    ('data.train', 'train', 'a tuple'),
    ('data.train', {'train': 1}, 'a tuple'),
    ('data.valid', None, 'of type str or a tuple'),
    ('seed', 1.5, 'of type int'),
  ],
)
def test_a_value_of_another_type_is_rejected(name, value, wanted):
  reject(nest(name, value), f'config.{name} must be {wanted}; got {value!r}')


def test_a_name_can_be_checked_by_itself():
  assert [type_of_setting(name) for name in ('train.steps', 'mesh')] == [
    int,
    MeshConfig,
  ]
  for name in (
    'model.num_head',
    'modle.num_heads',
    'seed.x',
    'data.train[0]',
    'data.train.x',
    '',
    'model.',
    '.model',
  ):
    with pytest.raises(UserError, match='there is no key config') as raised:
      type_of_setting(name)
    assert name.split('.')[0] in str(raised.value)


@pytest.mark.parametrize(
  ('tree', 'message'),
  [
    ({'model': 3}, 'config.model must be a group of keys; got 3'),
    ([], 'must be a group of keys'),
    (
      {'train': {'steps': 2**63}},
      'train.steps must be at least 1 and at most 1000000000; got ',
    ),
    (
      {'data': {'train': ['\ud800']}},
      'an item of config.data.train must be text on one line; ',
    ),
    *(
      ({'data': {'dir': text}}, 'config.data.dir must be text on one line; ')
      for text in ('a\0b', 'a\nerror: b', '\x1b[2J', '\u2028', '\ud800')
    ),
    ({'model': {3: 'x'}}, 'there is no key config.model.3'),
    ({'se\ned': 3}, 'there is no key config.se\\ned; did you mean config.seed?'),
    (
      {'data': {'valid': ['a', 3]}},
      'an item of config.data.valid must be of type str; got 3; text '
      'that looks like a number needs extra quotes, as in "\'3\'"',
    ),
  ],
)
def test_useless_values_are_rejected_in_one_line(tree, message):
  reject(tree, message)


def test_settings_round_trip_and_only_lossless_conversions_are_made():
  config = Config.from_dict(
    {
      'data': {
        **TEXT,
        'train': ['x', 'y'],
        'passes_per_epoch': [2, 0.25],
        'max_length': 17,
        'augmentations': ['m:f', ['m:g', 1, 0.5]],
      },
      'model': {'key_dim': 11, 'value_dim': None, 'dropout': 0},
      'train': {'tokens_per_batch': 17 * 35},
      'mesh': {'data': 1, 'tensor': -1},
      'seed': 13,
    }
  )
  for same in (config, Config()):
    assert Config.from_dict(json.loads(json.dumps(same.to_dict()))) == same
    assert Config.from_dict(ml_collections.ConfigDict(same.to_dict()).to_dict()) == same
  assert type(config.model.dropout) is float and config.model.value_dim is None
  assert config.data.train == ('x', 'y') and config.data.passes_per_epoch == (2.0, 0.25)
  assert [type(weight) for weight in config.data.passes_per_epoch] == [float, float]
  assert config.data.augmentations == ('m:f', ('m:g', 1.0, 0.5))
  assert config.plugin_kinds == {'m:f': 'augmentation', 'm:g': 'augmentation'}


def test_defaults_are_the_base_model_of_the_paper():
  flat = flatten(Config.from_dict({}).to_dict())
  paper = {  # Table 3 and sections 3.4, 5.1 to 5.4 and 6.1.
    'model.num_layers': 6,
    'model.model_dim': 512,
    'model.ff_dim': 2048,
    'model.num_heads': 8,
    'model.dropout': 0.1,
    'model.norm_position': 'post',
    'model.positions': 'sinusoidal',
    'model.share_embeddings': True,
    'model.tie_output': True,
    'data.vocabulary_size': 37_000,
    'optimizer.algorithm': 'adam',
    'optimizer.schedule': 'noam',
    'optimizer.noam_scale': 1.0,
    'optimizer.warmup_steps': 4000,
    'optimizer.b2': 0.98,
    'optimizer.weight_decay': 0.0,
    'optimizer.clip_norm': 0.0,
    'train.steps': 100_000,
    'train.label_smoothing': 0.1,
    'decode.beam_size': 4,
    'decode.alpha': 0.6,
    'decode.max_extra_length': 50,
  }
  assert {name: flat[name] for name in paper} == paper
  assert 24_000 <= flat['train.tokens_per_batch'] <= 26_000
  assert Config().model.head_key_dim == Config().model.head_value_dim == 64


@pytest.mark.parametrize(
  'value',
  [
    LONG,
    f'a:{LONG}',
    (LONG, LONG),
    (f'a:{LONG}', LONG),
    ('', LONG),
    [LONG] * 3,
    {'x': LONG},
    'a b ' * 2500,
    ('', 'a b ' * 2500),
    tuple(map(str, range(4000))),
    tuple(range(4000)),
  ],
  ids=lambda value: str(value)[:9],
)
def test_a_long_value_is_quoted_in_part_with_its_key(value):
  for name in flatten(Config().to_dict()):
    try:
      Config.from_dict(nest(name, value))
    except UserError as error:
      assert name.rpartition('.')[2] in str(error) and len(str(error)) < 450, error


def test_of_a_long_name_both_ends_are_kept():
  reject({'data': {LONG: 3}}, 'there is no key config.data.xxx', 'x…x')


@pytest.mark.parametrize(
  ('changes', 'fact'),
  [
    (
      {'optimizer': {'schedule': 'x'}},
      'optimizer.schedule must be one of noam, inverse_sqrt, ',
    ),
    *(
      (
        settings,
        'must be MODULE:NAME, or a tuple of it, its positional numbers',
      )
      for part in ('b', ['b', 1.0], [1.0, 'a:b'], ['a:b', 'c'], ['a:b', INF], [])
      for settings in (
        {'train': {'objective': part}},
        {'data': {'augmentations': [part]}},
      )
    ),
    ({'train': {'objective_runs': ['a']}}, 'directories of runs, for an objective'),
    (
      {'train': {'objective': 'a:b', 'objective_runs': ['']}},
      'must name the directories',
    ),
    (
      {'data': {'max_length': 100}, 'train': {'tokens_per_batch': 1001}},
      'must be a multiple of data.max_length',
    ),
    (
      {
        'data': {'max_length': 100},
        'train': {'tokens_per_batch': 700},
        'optimizer': {'num_microbatches': 2},
      },
      'optimizer.num_microbatches must divide',
    ),
    (
      {'model': {'positions': 'learned', 'max_positions': 305}},
      'model.max_positions must reach',
    ),
    *(
      (
        {'data': {'valid': ('news', 'talks', 'web')}, 'train': {'best_by': best_by}},
        f'after the first of data.valid (talks, web); got {best_by!r}',
      )
      for best_by in ('news/bleu', 'web2/loss')
    ),
    (
      {'train': {'best_by': 'validation/bleu'}},
      'the first of data.valid (none); got',
    ),
    (
      {
        'data': {'max_length': 99},
        'train': {'tokens_per_batch': 990},
        'model': {'attention': 'cudnn', 'dtype': 'bfloat16'},
      },
      'data.max_length must be even',
    ),
    (
      {'data': {'shared_vocabulary': False}},
      'set --config.model.share_embeddings=False',
    ),
    *(
      ({'mesh': mesh}, 'and at most one of them −1; got')
      for mesh in ({'data': 0}, {'fsdp': -2}, {'tensor': 0}, {'fsdp': -1})
    ),
    ({'data': {'source': 'nonsense'}}, 'data.source must be one of tfds, text'),
  ],
)
def test_settings_that_contradict_each_other_are_rejected(changes, fact):
  reject(changes, fact)


@pytest.mark.parametrize(
  'changes',
  [
    {
      'data': {'max_length': 100},
      'train': {'tokens_per_batch': 700},
      'optimizer': {'num_microbatches': 7},
    },
    {
      'model': {
        'positions': 'learned',
        'max_positions': 306,
        'num_heads': 7,
        'key_dim': 3,
        'value_dim': 5,
      }
    },
    {
      'data': {
        'valid': ('news', 'talks/web'),
        'shared_vocabulary': False,
        'source_vocabulary_size': 264,
      },
      'train': {'best_by': 'talks/web/chrf'},
      'model': {'share_embeddings': False, 'max_positions': 1},
    },
    {'mesh': {'data': 1, 'fsdp': -1}},
    {'mesh': {'data': 2, 'fsdp': 3, 'tensor': 5}},
  ],
)
def test_settings_that_fit_each_other_are_accepted(changes):
  assert (
    flatten(Config.from_dict(changes).to_dict()).items() >= flatten(changes).items()
  )


@pytest.mark.parametrize(
  ('name', 'values', 'wanted'),
  [
    ('model.norm_position', ['rms'], 'one of post, pre'),
    ('decode.dtype', ['int8'], 'one of trained, float32, bfloat16'),
    ('model.dropout', [-0.1, 1.0, NAN], 'at least 0 and below 1'),
    ('optimizer.noam_scale', [0.0, -1.0, NAN, INF], 'above 0 and finite'),
    ('decode.alpha', [-0.1, NAN, INF], 'at least 0 and finite'),
    ('train.grace_seconds', [0.0, 1e10, NAN], 'above 0 and at most 1000000000'),
    ('train.patience', [-1], 'at least 0'),
    ('model.num_layers', [0, 1001], 'at least 1 and at most 1000'),
    ('train.steps', [0, -1], 'at least 1'),
  ],
)
def test_a_value_out_of_bounds_is_rejected_with_its_bounds(name, values, wanted):
  for value in values:
    reject(nest(name, value), f'{name} must be {wanted}; got {value!r}')


def test_every_number_has_bounds():
  numbers = {
    name: value
    for name, value in flatten(Config().to_dict()).items()
    if isinstance(value, (int, float)) and not isinstance(value, bool)
  }
  for name, value in numbers.items():
    reject(nest(name, -(10**9)), name.rpartition('.')[0] or 'seed')
    if isinstance(value, int) and name != 'seed':
      reject(nest(name, 10**9 + 1), name)
    reject(nest(name, 10**400), name)


@pytest.mark.parametrize(
  ('changes', 'facts'),
  [
    ({}, ()),
    ({'train': {'steps': 4000}}, ('optimizer.warmup_steps=4000, train.steps=4000',)),
    (
      {'optimizer': {'peak_learning_rate': 1e-3}},
      ('peak_learning_rate has no effect with optimizer.schedule=noam',),
    ),
    (
      {'optimizer': {'noam_scale': 2.0, 'schedule': 'cosine'}},
      ('noam_scale has no effect with optimizer.schedule=cosine',),
    ),
    ({'optimizer': {'noam_scale': 2.0}}, ()),
    *(
      (
        {'data': {'target_language': language}},
        (f'set decode.bleu_tokenize={tokenize} (',),
      )
      for language, tokenize in (
        ('zh-CN', 'zh'),
        ('zho_Hans', 'zh'),
        ('yue', 'zh'),
        ('JP', 'ja-mecab'),
        ('tha_Thai', 'char'),
      )
    ),
    *(
      ({'data': {'target_language': language}}, ())
      for language in ('ko', 'ms-MY', 'japanisch')
    ),
    ({'data': {'target_language': 'ja'}, 'decode': {'bleu_tokenize': 'char'}}, ()),
  ],
)
def test_questionable_settings_are_logged(changes, facts):
  warnings = Config.from_dict(changes).warnings()
  assert len(warnings) == len(facts) and all(map(str.__contains__, warnings, facts)), (
    warnings
  )
