"""Settings have known names, types and values; anything else is refused in one line."""

import dataclasses
import json
import re

import ml_collections
import numpy as np
import pytest

from transformer.config import Config, check_name, check_value, flatten
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.old_settings import check_none_ended

TEXT = {'source': 'text', 'dir': 'somewhere'}
NOT_A_NUMBER = float('nan')


def nest(name, value):
  """Returns a dotted name, such as `model.norm`, and a value as nested dicts."""
  for part in reversed(name.split('.')):
    value = {part: value}
  return value


def refuse(tree, *facts):
  with pytest.raises(UserError) as raised:
    Config.from_dict(tree)
  message = str(raised.value)
  assert '\n' not in message
  for fact in facts:
    assert fact in message, message


@pytest.mark.parametrize(('name', 'nearest'), [
    ('model.num_head', 'model.num_heads'), ('model.NUM_HEADS', 'the keys there are num_layers, '),
    ('optimizer.peak_lr', 'optimizer.peak_learning_rate'), ('train.step', 'train.steps'),
    ('data.vocab_size', 'data.vocabulary_size'), ('decode.beamsize', 'decode.beam_size'),
    ('mesh.tensors', 'mesh.tensor'), ('modle', 'model'), ('sead', 'seed'),
    ('training', 'train'), ('xyzzy', 'the keys there are data, model, optimizer, train, decode'),
    ('model.xyzzy', 'the keys there are num_layers, encoder_layers'),
])
def test_an_unknown_name_names_the_nearest(name, nearest):
  refuse(nest(name, {}), f'there is no key config.{name}; ', nearest)


@pytest.mark.parametrize('name', ['model.num_head', 'modle.num_heads', 'xyzzy', 'seed.x',
                                  'data.train[0]', 'data.train.x', '', 'model.', '.model'])
def test_a_name_can_be_checked_by_itself(name):
  with pytest.raises(UserError, match='there is no key config') as raised:
    check_name(name)
  assert name.split('.')[0] in str(raised.value)


def test_every_key_and_group_is_a_name():
  settings = Config().to_dict()
  for name in (*flatten(settings), *settings):
    check_name(name)


def test_a_group_must_be_a_group():
  refuse({'model': 3}, 'config.model must be a group of keys; got 3')
  refuse({'model': None}, 'config.model must be a group of keys; got None')
  refuse([], 'must be a group of keys')


@pytest.mark.parametrize(('name', 'value', 'wanted'), [
    ('model.num_heads', '8', 'of type int'), ('model.num_heads', True, 'of type int'),
    ('model.num_heads', 8.0, 'of type int'), ('model.num_heads', None, 'of type int'),
    ('model.key_dim', '8', 'of type int'), ('model.key_dim', False, 'of type int'),
    ('model.key_dim', 8.0, 'of type int'),
    ('model.dropout', '0.1', 'of type float'), ('model.dropout', False, 'of type float'),
    ('model.dropout', None, 'of type float'),
    ('model.norm', 1, 'of type str'), ('model.norm', None, 'of type str'),
    ('model.tie_output', 1, 'of type bool'), ('model.tie_output', 'yes', 'of type bool'),
    ('data.train', 'train', 'a tuple'), ('data.train', None, 'a tuple'),
    ('data.train', {'train': 1}, 'a tuple'), ('seed', 1.5, 'of type int'),
    ('seed', None, 'of type int'), ('train.steps', [3], 'of type int'),
    ('data.valid', None, 'of type str'), ('data.valid', 3, 'of type str'),
])
def test_a_value_of_another_type_is_refused(name, value, wanted):
  message = f'config.{name} must be {wanted}; got {value!r}'
  refuse(nest(name, value), message)
  with pytest.raises(UserError, match=re.escape(message)):
    check_value(name, value)


def test_a_value_can_be_checked_by_itself_and_without_the_others():
  for name, value in flatten(Config().to_dict()).items():
    check_value(name, value)
  check_value('train.tokens_per_batch', 1)  # Only `data.max_length` forbids it.
  for valid in ('a', ['a'], ('a', 'b')):
    check_value('data.valid', valid)
  check_value('data.train', ['a'])
  with pytest.raises(UserError, match=r'config.model is a group of keys, .*; got 3'):
    check_value('model', 3)
  with pytest.raises(UserError, match=r'there is no key config.model.drop'):
    check_value('model.drop', 3)


@pytest.mark.parametrize(('tree', 'message'), [
    ({'train': {'steps': 2 ** 63}}, 'config.train.steps must lie within ±1,000,000,000; '
                                    'got 9223372036854775808'),
    ({'seed': 10 ** 5000}, 'config.seed must lie within ±4,294,967,296; got one of type int that '
                           'is too long to show'),
    ({'train': {'steps': -10 ** 5000}}, 'config.train.steps must lie within ±1,000,000,000; '),
    ({'data': {'dir': 'a\x00b'}}, "config.data.dir must be text on one line; got 'a\\x00b'"),
    ({'data': {'train': ['\ud800']}}, "an item of config.data.train must be text on one line; "
                                      "got '\\ud800'"),
    ({'model': {'norm': np.zeros((2, 2))}}, 'must be of type str; got array([[0., 0.],        [0.'),
    ({'model': {3: 'x'}}, 'the names of keys must be text; got 3 in config.model'),
    ({None: 'x'}, 'the names of keys must be text; got None in config'),
    ({'se\ned': 3}, "there is no key config.'se\\ned'; did you mean config.seed?"),
])
def test_absurd_values_are_refused_in_one_line(tree, message):
  refuse(tree, message)


def test_a_value_too_long_to_read_is_cut():
  with pytest.raises(UserError) as raised:
    Config.from_dict({'seed': 'x' * 100_000})
  assert len(str(raised.value)) < 200


def test_an_item_of_another_type_is_refused():
  for key in ('data.train', 'data.valid'):
    refuse(nest(key, ['a', 3]), f'an item of config.{key} must be of type str; got 3; text that '
           f'looks like a number needs quotes of its own, as in "\'3\'"')
  refuse(nest('data.train_weights', ('1',)), 'an item of config.data.train_weights', 'float')


def test_only_lossless_conversions_are_made():
  config = Config.from_dict({
      'model': {'dropout': 0, 'key_dim': None}, 'optimizer': {'peak_learning_rate': 1},
      'data': {'train': ['a', 'b'], 'train_weights': [1, 0.5]}})
  assert type(config.model.dropout) is float and config.model.dropout == 0.0
  assert type(config.optimizer.peak_learning_rate) is float
  assert config.model.key_dim is None
  assert config.data.train == ('a', 'b') and config.data.train_weights == (1.0, 0.5)
  assert [type(each) for each in config.data.train_weights] == [float, float]


def test_settings_come_back_from_a_dict_and_from_json():
  tree = {'data': {**TEXT, 'train': ['x', 'y'], 'train_weights': [2, 0.25], 'max_length': 17},
          'model': {'key_dim': 11, 'value_dim': None, 'tie_output': False, 'norm': 'pre'},
          'optimizer': {'schedule': 'cosine', 'eps': 1e-9, 'accumulate': 5},
          'train': {'tokens_per_batch': 17 * 35}, 'mesh': {'data': 1, 'tensor': -1}, 'seed': 13}
  config = Config.from_dict(tree)
  assert config != Config()
  for each in (config, Config()):
    assert Config.from_dict(each.to_dict()) == each
    assert Config.from_dict(json.loads(json.dumps(each.to_dict()))) == each
    assert Config.from_dict(ml_collections.ConfigDict(each.to_dict()).to_dict()) == each
  for name, value in flatten(tree).items():
    found = flatten(config.to_dict())[name]
    assert found == (tuple(value) if isinstance(value, list) else value), name


def test_saved_settings_without_a_later_key_behave_as_they_did():
  saved = Config().to_dict()
  saved['model'].pop('attention_bias')
  assert Config.from_saved(saved).model.attention_bias == 'all'
  assert Config.from_saved({}).model.attention_bias == 'all'
  saved['model']['attention_bias'] = 'output'
  assert Config.from_saved(saved).model.attention_bias == 'output'
  assert Config.from_saved(Config().to_dict()) == Config()
  with pytest.raises(UserError, match=r'config\.model must be a group of keys; got 3'):
    Config.from_saved({'model': 3})


def test_a_setting_that_ended_is_left_out_and_trains_no_more():
  saved = Config().to_dict()
  for plain in ({}, {'alignment_layer': 0, 'alignment_weight': 0.2}):
    before = saved | {'train': saved['train'] | plain, 'data': saved['data'] | {'alignments': ''}}
    assert Config.from_saved(before) == Config()
    check_none_ended('RUN', before)
  guided = saved | {'train': saved['train'] | {'alignment_layer': 2}}
  assert Config.from_saved(guided) == Config()
  with pytest.raises(UserError, match=r'RUN was trained with train\.alignment_layer=2, which has '
                                      r'ended \(docs/alignments\.md\).*init_from=RUN') as raised:
    check_none_ended('RUN', guided)
  assert '\n' not in str(raised.value)
  refuse(guided, 'no key config.train.alignment_layer; it has ended, as docs/alignments.md says')


def test_noise_of_an_earlier_run_is_a_variation_today():
  saved = Config().to_dict()
  before = {**saved, 'data': {**saved['data'], 'upper_case': 0.0, 'title_case': 0.25,
                              'typing_errors': 0.0}}
  assert Config.from_saved(before).data.variations == (
      ('transformer.tools.noise:source_noise', 0.0, 0.25, 0.0),)
  before['data']['title_case'] = 0.0
  assert Config.from_saved(before) == Config()
  refuse({'data': {'title_case': 0.1}}, 'it is a number of data.variations now: '
                                        "(('transformer.tools.noise:source_noise', ")


def test_a_variation_is_a_name_alone_or_with_whole_and_other_numbers():
  variations = ['m:f', ['m:g', 1, 0.5]]
  config = Config.from_dict({'data': {'variations': variations}})
  assert config.data.variations == ('m:f', ('m:g', 1.0, 0.5))
  assert config.own_code == {'m:f': 'variation', 'm:g': 'variation'}


def test_r_drop_and_teachers_of_earlier_versions_are_objectives():
  keys = {'teacher_share': 0.25, 'teacher_temperature': 2.0}
  distillation = 'transformer.tools.distil.objective:distillation', 0.25, 2.0
  for old, objective, runs in (
      ({'r_drop': 0.0, 'teachers': []}, '', ()),
      ({'r_drop': 3.0, 'teachers': []}, ('transformer.training.r_drop:r_drop', 3.0), ()),
      ({'r_drop': 0.0, 'teachers': ['a', 'b']}, (*distillation, 0.0), ('a', 'b')),
      ({'r_drop': 3.0, 'teachers': ['a']}, (*distillation, 3.0), ('a',))):
    train = Config.from_saved({'train': {'steps': 7, **keys, **old}}).train
    assert (train.steps, train.objective, train.objective_runs) == (7, objective, runs)
  refuse({'train': {'r_drop': 1.0}}, "now: ('transformer.training.r_drop:r_drop', r_drop)")
  refuse({'train': {'teachers': ['a']}}, "now: ('transformer.tools.distil.objective:")


def test_flattening_joins_names_by_dots():
  assert flatten({'a': {'b': {'c': 3}, 'd': (5,)}, 'e': None}) == {
      'a.b.c': 3, 'a.d': (5,), 'e': None}


def test_settings_are_frozen():
  config = Config()
  for group in (config, *(getattr(config, field.name) for field in dataclasses.fields(config)
                          if field.name != 'seed')):
    with pytest.raises(dataclasses.FrozenInstanceError):
      setattr(group, dataclasses.fields(group)[0].name, 3)


def test_defaults_are_the_base_model_of_the_paper():
  flat = flatten(Config.from_dict({}).to_dict())
  paper = {  # Table 3 and sections 3.4, 5.1 to 5.4 and 6.1.
      'model.num_layers': 6, 'model.model_dim': 512, 'model.ff_dim': 2048, 'model.num_heads': 8,
      'model.dropout': 0.1, 'model.norm': 'post', 'model.positions': 'sinusoidal',
      'model.share_embeddings': True, 'model.tie_output': True, 'data.vocabulary_size': 37_000,
      'optimizer.algorithm': 'adam', 'optimizer.schedule': 'paper', 'optimizer.scale': 1.0,
      'optimizer.warmup_steps': 4000, 'optimizer.b1': 0.9, 'optimizer.b2': 0.98,
      'optimizer.eps': 1e-9, 'optimizer.weight_decay': 0.0,
      'optimizer.clip_norm': 0.0, 'train.steps': 100_000, 'train.label_smoothing': 0.1,
      'decode.beam_size': 4, 'decode.alpha': 0.6, 'decode.max_extra_length': 50}
  assert {name: flat[name] for name in paper} == paper
  assert 24_000 <= flat['train.tokens_per_batch'] <= 26_000
  assert Config().model.head_key_dim == Config().model.head_value_dim == 64


@pytest.mark.parametrize(('changes', 'facts'), [
    ({'data': {'dir': 's3://b'}}, ('data.dir must be a path', 'which begins with s3://')),
    ({'train': {'init_from': 'gs://b'}}, ('train.init_from must be a path',)),
    ({'train': {'objective': 'a:b', 'objective_runs': ['a', 'gs://b']}},
     ('train.objective_runs must be a path',)),
    *((settings, ('must be MODULE:FUNCTION, or a tuple of that and the numbers that it takes',))
      for part in ('b', ['b', 1.0], [1.0, 'a:b'], ['a:b', 'c'], ['a:b', float('inf')])
      for settings in ({'train': {'objective': part}}, {'data': {'variations': [part]}})),
    ({'data': {'variations': [[]]}}, ('an item of data.variations must be', 'got ()')),
    ({'train': {'objective': []}}, ('train.objective must be', 'got ()')),
    ({'train': {'objective_runs': ['a']}}, ('directories of runs, for an objective',)),
    ({'train': {'objective': 'a:b', 'objective_runs': ['']}}, ('must name the directories',)),
    ({'data': {'max_length': 100}, 'train': {'tokens_per_batch': 1001}},
     ('must be a multiple of data.max_length', 'tokens_per_batch=1001, max_length=100')),
    ({'data': {'max_length': 100}, 'train': {'tokens_per_batch': 700},
      'optimizer': {'accumulate': 2}}, ('optimizer.accumulate must divide', '= 7; got 2')),
    ({'data': {'max_length': 256}, 'decode': {'max_extra_length': 50},
      'model': {'positions': 'learned', 'max_positions': 305}},
     ('model.max_positions must reach', '= 306', 'got 305')),
    *(({'data': {'valid': ('news', 'talks', 'web')}, 'train': {'best_by': best_by}},
       ('the sets after the first of data.valid are talks, web', f'got {best_by!r}'))
      for best_by in ('news/bleu', 'web2/loss')),
    ({'data': {'max_length': 99}, 'train': {'tokens_per_batch': 990},
      'model': {'attention': 'cudnn', 'dtype': 'bfloat16'}}, ('data.max_length must be even',)),
    ({'train': {'best_by': 'validation/bleu'}}, ('the first of data.valid are none; got',)),
    ({'data': {'shared_vocabulary': False}},
     ('gives each language its own embeddings; set --config.model.share_embeddings=False',)),
    ({'seed': -1}, ('seed must be at least 0 and below 2³²; got -1',)),
    ({'seed': 2 ** 32}, ('seed must be at least 0 and below 2³²; got 4294967296',)),
])
def test_groups_that_contradict_each_other_are_refused(changes, facts):
  refuse(changes, *facts)


@pytest.mark.parametrize('changes', [
    {'data': {'max_length': 100}, 'train': {'tokens_per_batch': 700},
     'optimizer': {'accumulate': 7}},
    {'model': {'positions': 'learned', 'max_positions': 306}},
    {'model': {'positions': 'sinusoidal', 'max_positions': 1}},
    {'model': {'num_heads': 7, 'key_dim': 3, 'value_dim': 5}},
    {'data': {'valid': ('news', 'talks/web')}, 'train': {'best_by': 'talks/web/chrf'}},
    {'data': {'shared_vocabulary': False, 'source_vocabulary_size': 264},
     'model': {'share_embeddings': False}},
    {'mesh': {'data': 1, 'fsdp': -1}}, {'mesh': {'data': 2, 'fsdp': 3, 'tensor': 5}},
])
def test_groups_that_fit_each_other_are_accepted(changes):
  assert flatten(Config.from_dict(changes).to_dict()).items() >= flatten(changes).items()


CHOICES = {
    'data.source': 'tfds, text', 'model.norm': 'post, pre',
    'model.positions': 'sinusoidal, learned', 'model.attention': 'reference, cudnn',
    'model.dtype': 'float32, bfloat16', 'decode.dtype': 'trained, float32, bfloat16',
    'decode.bleu_tokenize': '13a, intl, none, char',
    'optimizer.algorithm': 'adam, muon',
    'optimizer.schedule': 'paper, inverse_sqrt, cosine, constant',
    'train.best_by': 'loss, perplexity, bleu, chrf'}
AT_LEAST_ONE = [
    'model.num_layers', 'model.model_dim', 'model.ff_dim', 'model.num_heads', 'model.key_dim',
    'model.value_dim', 'model.max_positions', 'optimizer.warmup_steps', 'optimizer.accumulate',
    'train.steps', 'train.tokens_per_batch', 'train.log_every', 'train.eval_every',
    'train.checkpoint_every', 'train.keep', 'decode.beam_size', 'decode.max_extra_length',
    'decode.batch_size']
NUMBERS = [
    ('model.dropout', (-0.1, 1.0, NOT_A_NUMBER), 'must be at least 0 and below 1'),
    ('train.label_smoothing', (-0.1, 1.0, NOT_A_NUMBER), 'must be at least 0 and below 1'),
    ('train.ema_decay', (-0.1, 1.0, NOT_A_NUMBER), 'must be at least 0 and below 1'),
    ('data.bpe_dropout', (-0.1, 1.0, NOT_A_NUMBER), 'must be at least 0 and below 1'),
    ('optimizer.b1', (-0.1, 1.0, NOT_A_NUMBER), 'must be at least 0 and below 1'),
    ('optimizer.b2', (-0.1, 1.0, NOT_A_NUMBER), 'must be at least 0 and below 1'),
    ('optimizer.scale', (0.0, -1.0, NOT_A_NUMBER, float('inf')), 'must be above 0 and finite'),
    ('optimizer.peak_learning_rate', (0.0, -1.0, NOT_A_NUMBER, float('inf')),
     'must be above 0 and finite'),
    ('optimizer.eps', (0.0, -1.0, NOT_A_NUMBER, float('inf')), 'must be above 0 and finite'),
    ('optimizer.weight_decay', (-0.1, NOT_A_NUMBER, float('inf')), 'must be at least 0 and finite'),
    ('optimizer.clip_norm', (-1.0, NOT_A_NUMBER), 'must be at least 0'),
    ('decode.alpha', (-0.1, NOT_A_NUMBER, float('inf')), 'must be at least 0 and finite'),
    ('decode.temperature', (0.0, -1.0, NOT_A_NUMBER, float('inf')), 'must be above 0 and finite'),
    ('decode.top_k', (-1,), 'must be at least 0'),
    ('decode.top_p', (0.0, -0.1, 1.1, NOT_A_NUMBER), 'must be above 0 and at most 1'),
    ('train.patience', (-1,), 'must be at least 0'),
    ('train.skip_nonfinite', (-1,), 'must be at least 0'),
    *((name, (0, -1), 'must be at least 1') for name in AT_LEAST_ONE)]


@pytest.mark.parametrize(('name', 'value', 'message'), [
    (name, value, message) for name, values, message in NUMBERS for value in values])
def test_a_number_out_of_bounds_is_refused(name, value, message):
  refuse(nest(name, value), f'{name} {message}; got {value}')


@pytest.mark.parametrize('name', CHOICES)
def test_a_choice_that_does_not_exist_lists_those_that_do(name):
  refuse(nest(name, 'nonsense'), f'{name} must be one of {CHOICES[name]}', "got 'nonsense'")


@pytest.mark.parametrize(('changes', 'facts'), [
    ({}, ()),
    ({'train': {'steps': 4000}}, ('optimizer.warmup_steps=4000, train.steps=4000',)),
    ({'optimizer': {'peak_learning_rate': 1e-3}},
     ('peak_learning_rate=0.001 does nothing with optimizer.schedule=paper',)),
    ({'optimizer': {'scale': 2.0, 'schedule': 'cosine'}},
     ('scale=2 does nothing with optimizer.schedule=cosine',)),
    ({'optimizer': {'scale': 2.0}}, ()),
    ({'data': {'drop_identical': True, 'shared_vocabulary': False},
      'model': {'share_embeddings': False}}, ('data.drop_identical compares tokens',)),
    ({'data': {'train': ('a', 'b'), 'train_stages': ((0, 1, 0), (5000, 1, 2))},
      'train': {'steps': 5000}}, ('begins after 5000 updates is never reached',)),
    ({'data': {'train': ('a', 'b'), 'train_stages': ((0, 1, 0), (5000, 1, 2))},
      'train': {'steps': 5001}}, ()),
    ({'optimizer': {'peak_learning_rate': 1e-3, 'schedule': 'constant'}}, ()),
    *(({'data': {'target_language': language}}, (f'set decode.bleu_tokenize={tokenize} (',))
      for language, tokenize in (
          ('zh-CN', 'zh'), ('zh-Hant', 'zh'), ('zho_Hans', 'zh'), ('cn', 'zh'), ('yue', 'zh'),
          ('ja', 'ja-mecab'), ('JP', 'ja-mecab'), ('jpn_Jpan', 'ja-mecab'), ('th', 'char'),
          ('tha_Thai', 'char'), ('mya_Mymr', 'char'))),
    *(({'data': {'target_language': language}}, ()) for language in ('ko', 'kr', 'ms-MY', 'ug-CN')),
    ({'data': {'target_language': 'ja'}, 'decode': {'bleu_tokenize': 'char'}}, ()),
    ({'data': {'target_language': 'japanisch'}}, ()),
    *(({'data': {'max_length': 99, 'train': ('a', 'b'), **settings},
        'train': {'tokens_per_batch': tokens}}, facts)
      for settings, tokens, facts in (
          ({}, 99, ()), ({'train_weights': (2, 1)}, 99, ()), ({'variations': ('m:f',)}, 198, ()),
          ({'variations': ('m:f',)}, 99, ('train.tokens_per_batch to at least 198',)),
          ({'train_weights': (2, 0.5)}, 99, ('a batch has a single row',)),
          ({'train_stages': ((0, 1, 0), (9, 1, 1.5))}, 99, ('a batch has a single row',))))])
def test_settings_that_are_probably_not_meant_are_said(changes, facts):
  found = Config.from_dict(changes).doubts()
  assert len(found) == len(facts) and all(map(str.__contains__, found, facts)), found


@pytest.mark.parametrize('widths', [{}, {'key_dim': 4}, {'value_dim': 4}])
def test_heads_must_divide_the_width_unless_their_own_are_given(widths):
  refuse({'model': {'num_heads': 3, 'model_dim': 8, **widths}},
         'num_heads must divide model_dim; got num_heads=3, model_dim=8')


def test_fused_attention_needs_16_bit_activations():
  refuse({'model': {'attention': 'cudnn'}}, 'model.attention=cudnn', '--config.model.dtype')
  short = ModelConfig(attention='cudnn', dtype='bfloat16')
  assert short.with_dtype('float32') == ModelConfig()
  assert ModelConfig().with_dtype('bfloat16') == ModelConfig(dtype='bfloat16')
  assert short.with_dtype('bfloat16') == short


@pytest.mark.parametrize('mesh', [{'data': 0}, {'fsdp': -2}, {'tensor': 0}, {'fsdp': -1}])
def test_mesh_sizes_are_positive_and_at_most_one_is_minus_one(mesh):
  sizes = {'data': -1, 'fsdp': 1, 'tensor': 1, **mesh}
  refuse({'mesh': mesh}, 'at most one of them', ', '.join(f'{k}={v}' for k, v in sizes.items()))


HOSTILE = [10**9 + 1, -10**9 - 1, 10**30, 10**400, 1e308 * 10, -1e308 * 10, NOT_A_NUMBER, 'a\0b',
           'a\nerror: b', '\x1b[2J', '\u2028', '\ud800', '../' * 99, 'x' * 10**6, [], [[[]]], {},
           {'a': {'b': []}}, None, True, '', ['a\0'], [10**400]]


@pytest.mark.parametrize('name', [*flatten(Config().to_dict()), 'model', 'a\nb', '\ud800', ''])
def test_any_value_is_valid_or_refused_in_one_line(name):
  for value in HOSTILE:
    try:
      config = Config.from_dict(nest(name, value))
    except UserError as error:
      text = str(error)
      assert text.isprintable() and text.encode(), text
    else:
      found = flatten(config.to_dict()).get(name, value)
      assert found in (value, tuple(value) if isinstance(value, list) else value) or (
          isinstance(found, float) and found == float(value))
      assert not isinstance(found, int) or abs(found) <= 10**9 or name == 'seed'
      assert not isinstance(found, str) or found.isprintable()


@pytest.mark.parametrize(('tree', 'fact'), [
    (nest('model.ff_dim', 10**9 + 1), 'ff_dim must lie within ±1,000,000,000; got 1000000001'),
    (nest('data.dir', 'a\nb'), r"data.dir must be text on one line; got 'a\nb'"),
    (nest('data.train', ['a', 'b\0']), r"data.train must be text on one line; got 'b\x00'"),
    (nest('model.dropout', 10**400), 'config.model.dropout must lie within ±1,000,000,000; got 1'),
    (nest('model.num_layers', 1001), 'model.num_layers must be at most 1,000; got 1001'),
    ({'a\nb': 1}, r"there is no key config.'a\nb'; "),
])
def test_harmful_values_are_refused(tree, fact):
  refuse(tree, fact)
