"""The files of configs/ are valid, and some of them equal published settings."""

import importlib
import re
from pathlib import Path

import ml_collections
import pytest

from transformer.config import Config, flatten
from transformer.errors import UserError

CONFIGS = sorted(
  path.stem for path in (Path(__file__).parents[1] / 'configs').glob('*.py')
)


@pytest.mark.parametrize('name', CONFIGS)
def test_every_config_is_valid_and_says_how_to_run_it(name):
  module = importlib.import_module(f'configs.{name}')
  config = module.get_config()
  assert isinstance(config, ml_collections.ConfigDict)
  settings = Config.from_dict(config.to_dict())
  assert set(flatten(config.to_dict())) == set(flatten(settings.to_dict()))
  if name != 'base':  # The others start from it, and nobody runs it.
    assert re.search(
      rf'^  python train\.py --config=configs/{name}\.py(:\S+)? ', module.__doc__, re.M
    )


BIG = {
  'model.model_dim': 1024,
  'model.ff_dim': 4096,
  'model.num_heads': 16,
  'model.dropout': 0.3,
  'train.steps': 300_000,
  'train.checkpoint_every': 600,
  'train.keep': 20,
}
GERMAN = {
  'data.tfds_name': 'wmt14_translate/de-en',
  'data.source_language': 'en',
  'data.target_language': 'de',
  'data.vocabulary_size': 37_000,
}
FRENCH = {
  'data.tfds_name': 'wmt14_translate/fr-en',
  'data.source_language': 'en',
  'data.target_language': 'fr',
  'data.vocabulary_size': 32_000,
}


@pytest.mark.parametrize(
  ('which', 'changes'),
  [
    ((), GERMAN),
    (('base',), GERMAN),
    (('en-de',), GERMAN),
    (('base,en-de',), GERMAN),
    (('big',), {**GERMAN, **BIG}),
    (('big,en-de',), {**GERMAN, **BIG}),
    (
      ('de-en',),
      {**GERMAN, 'data.source_language': 'de', 'data.target_language': 'en'},
    ),
    (('en-fr',), FRENCH),
    (('base,en-fr',), FRENCH),
    (('big,en-fr',), {**FRENCH, **BIG, 'model.dropout': 0.1}),
    (
      ('big,fr-en',),
      {
        **FRENCH,
        **BIG,
        'model.dropout': 0.1,
        'data.source_language': 'fr',
        'data.target_language': 'en',
      },
    ),
  ],
)
def test_wmt14_has_the_papers_settings_for_each_size_and_direction(which, changes):
  found = flatten(importlib.import_module('configs.wmt14').get_config(*which).to_dict())
  # All else is the base model; tests/test_config.py compares it with the paper.
  wanted = {
    **flatten(Config().to_dict()),
    'data.dir': 'data',
    'data.valid': 'validation',
    'data.test': 'test',
    'train.keep': 5,
    'train.checkpoint_every': 1500,
    'train.eval_every': 3000,
    **changes,
  }
  assert found == wanted
  # The best evaluation saves a checkpoint too, which must be among those that are averaged.
  assert found['train.eval_every'] % found['train.checkpoint_every'] == 0


def test_parsing_is_the_papers_or_sized_for_two_cores():
  get_config = importlib.import_module('configs.parsing').get_config
  paper, cpu = (flatten(get_config(size).to_dict()) for size in ('paper', 'cpu'))
  assert flatten(get_config().to_dict()) == paper
  section = {  # 6.3
    'data.vocabulary_size': 16_000,
    'model.num_layers': 4,
    'model.model_dim': 1024,
    'model.attention_dropout': 0.1,
    'decode.beam_size': 21,
    'decode.alpha': 0.3,
    'decode.max_extra_length': 300,
    'data.source': 'transformer.tools.parse.source:Trees',
  }
  assert paper.items() >= section.items()
  assert cpu['data.source'] == f'{section["data.source"]}InOrder'
  assert {'▁NP(', '▁)NP', '▁VP(', '▁)VP'} <= {*cpu['data.user_defined_symbols']}
  assert cpu['model.model_dim'] < 1024


@pytest.mark.parametrize(
  ('name', 'kinds'),
  [
    ('parsing', 'paper or cpu'),
    ('tatoeba', 'gpu or cpu'),
    ('multi30k', 'student, forward or back'),
    ('architectures', 'transformer, grouped_query, mixture_of_experts or prefix_lm'),
    ('text', 'languages and a folder of text'),
  ],
)
def test_another_argument_of_a_config_is_rejected(name, kinds):
  with pytest.raises(UserError, match=rf"takes {kinds}, such as .*; got 'nonsense'$"):
    importlib.import_module(f'configs.{name}').get_config('nonsense')


def test_the_teachers_of_multi30k_translate_for_the_student():
  module = importlib.import_module('configs.multi30k')
  student, forward, back = (
    Config.from_dict(module.get_config(model).to_dict()).data
    for model in ('student', 'forward', 'back')
  )
  assert Config.from_dict(module.get_config().to_dict()).data == student
  assert [
    (data.source_language, data.target_language) for data in (student, forward, back)
  ] == [
    ('en', 'de'),
    ('en', 'de'),
    ('de', 'en'),
  ]
  assert forward.train == back.train == ('train',)
  assert student.train == ('train', 'train_forward', 'train_back')


def test_the_tiny_recipe_is_the_published_one():
  found = flatten(
    importlib.import_module('configs.multi30k_tiny').get_config().to_dict()
  )
  published = {
    'data.vocabulary_size': 10_000,
    'data.train': ('train',),
    'data.valid': 'val',
    'data.test': 'test_2016_flickr',
    'data.source_language': 'en',
    'data.target_language': 'de',
    'model.num_layers': 4,
    'model.model_dim': 128,
    'model.ff_dim': 256,
    'model.num_heads': 4,
    'model.dropout': 0.3,
    'model.attention_bias': 'all',
    'optimizer.schedule': 'inverse_sqrt',
    'optimizer.peak_learning_rate': 5e-3,
    'optimizer.warmup_steps': 2000,
    'train.steps': 8000,
    'train.tokens_per_batch': 8192,
    'train.patience': 10,
    'decode.beam_size': 5,
    'decode.bleu_tokenize': 'none',
  }
  ours = {
    'data.source': 'text',
    'data.dir': 'data/multi30k/tok',
    'data.max_length': 64,
    'train.log_every': 55,
    'train.eval_every': 55,
    'train.checkpoint_every': 55,
    'train.keep': 10,
    'decode.alpha': 1.4,
  }
  # All other settings, such as Adam and post-norm, are the paper's.
  assert found == {**flatten(Config().to_dict()), **published, **ours}


def test_the_base_config_has_every_key_and_a_type_for_those_that_are_none():
  config = importlib.import_module('configs.base').get_config()
  assert Config.from_dict(config.to_dict()) == Config()
  for name in ('key_dim', 'value_dim'):
    assert config.model[name] is None
    with pytest.raises(TypeError):
      config.model[name] = 'wide'
    config.model[name] = 11
  assert Config.from_dict(config.to_dict()).model.head_key_dim == 11
