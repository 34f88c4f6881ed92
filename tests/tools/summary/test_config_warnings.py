"""Finds questionable settings, even from other toolkits' issues, and none in our configs."""

import dataclasses
import importlib

import pytest

from launch.config_file import with_settings
from transformer.config import Config
from transformer.tools.summary.config_warnings import config_warnings
from transformer.tools.summary.job import DatasetSize, Job, describe

ARGUMENTS = {
  'architectures': ('transformer', 'grouped_query', 'mixture_of_experts', 'prefix_lm'),
  'modern': ('',),
  'multi30k': ('student', 'forward', 'back'),
  'multi30k_tiny': ('',),
  'parsing': ('paper', 'cpu'),
  'quickstart': ('',),
  'table3': ('',),
  'tatoeba': ('gpu', 'cpu'),
  'text': ('', 'small:'),
  'wmt14': ('base', 'big', 'big,en-fr', 'big,fr-en'),
}
BIG = {
  'model.model_dim': 1024,
  'model.ff_dim': 4096,
  'model.num_heads': 16,
  'model.dropout': 0.3,
}
CONSTANT = {'optimizer.schedule': 'constant', 'optimizer.warmup_steps': 1}
INVERSE_SQRT = {'optimizer.schedule': 'inverse_sqrt'}
TEXT = DatasetSize(
  pairs=1_000_000,
  too_long=0,
  source_tokens=25_000_000,
  target_tokens=25_000_000,
  validation_pairs=3000,
  steps_per_epoch=1000,
)


def job_of(settings, text=None, devices=1):
  config = with_settings(Config(), settings)
  length = config.data.max_length
  rows = config.train.tokens_per_batch // length
  return Job(config, devices, (rows, length, length), text)


def settings_of(found):
  return [warning['setting'] for warning in found]


@pytest.mark.parametrize(
  ('name', 'argument'),
  [(name, each) for name, several in ARGUMENTS.items() for each in several],
)
def test_no_setting_of_our_configs_is_questionable(name, argument, tmp_path):
  if argument == 'small:':
    for language in 'de', 'en':
      (tmp_path / f'train.{language}').write_text('a b\n' * 20_000, 'utf-8')
    argument += str(tmp_path)
  module = importlib.import_module(f'configs.{name}')
  tree = module.get_config(*[argument] if argument else []).to_dict()
  assert config_warnings(describe(Config.from_dict(tree))) == []


def test_the_configs_are_all_of_ours():
  from tests.test_config_files import CONFIGS

  assert {*ARGUMENTS, 'base'} == {*CONFIGS}


@pytest.mark.parametrize(
  ('settings', 'questionable'),
  [
    # https://github.com/facebookresearch/fairseq/issues/1681: the loss stays at 10.7;
    # "That learning rate is probably way too high. Try reducing to 0.0005."
    (
      {
        **INVERSE_SQRT,
        'optimizer.peak_learning_rate': 5e-3,
        'train.tokens_per_batch': 2048,
        'model.dropout': 0.2,
      },
      ['optimizer.peak_learning_rate'],
    ),
    # https://github.com/facebookresearch/fairseq/issues/1923: BLEU 7.94 after 80 epochs, with
    # batches of 50 sentences, no schedule and no warm-up.
    (
      {
        **CONSTANT,
        'optimizer.peak_learning_rate': 3e-3,
        'train.tokens_per_batch': 5 * 256,
        'model.dropout': 0.3,
      },
      [
        'optimizer.warmup_steps',
        'optimizer.peak_learning_rate',
        'train.tokens_per_batch',
      ],
    ),
    # https://github.com/facebookresearch/fairseq/issues/1239: BLEU 0 without a schedule; a
    # warm-up of 8,000 steps solved it.
    (CONSTANT, ['optimizer.warmup_steps']),
    # https://github.com/facebookresearch/fairseq/issues/417: the big model's loss stays at 7.02
    # on one GPU; "the effective batch size (wpb) will be too small".
    (
      {
        **BIG,
        **INVERSE_SQRT,
        'optimizer.peak_learning_rate': 5e-4,
        'data.max_length': 250,
        'train.tokens_per_batch': 3000,
      },
      ['train.tokens_per_batch'],
    ),
    # https://github.com/OpenNMT/OpenNMT-py/issues/869: without the decay that the rate is meant
    # for, "the training does not work at all".
    (
      {**CONSTANT, 'optimizer.peak_learning_rate': 2.0},
      ['optimizer.warmup_steps', 'optimizer.peak_learning_rate'],
    ),
    # https://github.com/marian-nmt/marian/issues/288: NaN within an epoch; "your lr-warmup is
    # too large. normally it will be 10000 or 16000".
    (
      {
        **INVERSE_SQRT,
        'optimizer.peak_learning_rate': 1e-3,
        'optimizer.warmup_steps': 91_000,
        'train.steps': 910_000,
      },
      ['optimizer.warmup_steps'],
    ),
    # https://github.com/marian-nmt/marian/issues/302: most of 200,000 steps are warm-up.
    (
      {
        **INVERSE_SQRT,
        'optimizer.peak_learning_rate': 3e-4,
        'optimizer.warmup_steps': 150_000,
        'train.steps': 200_000,
      },
      ['optimizer.warmup_steps'],
    ),
    # https://github.com/thu-coai/CDial-GPT/issues/52: a learning rate given as the factor of the
    # paper's schedule would be 20,000 times too low.
    ({'optimizer.noam_scale': 5e-5}, ['optimizer.noam_scale']),
  ],
)
def test_configs_of_other_toolkits_issues_are_questionable(settings, questionable):
  assert settings_of(config_warnings(job_of(settings))) == questionable


def test_a_validation_that_takes_longer_than_training_is_questionable():
  # https://github.com/joeynmt/joeynmt/issues/165: of 900,000 pairs, 100,000 are for validation
  # after every 2,000 steps of 4,096 tokens, "almost 2days for just evalutating once".
  settings = {'train.eval_every': 2000, 'train.tokens_per_batch': 4096}
  text = dataclasses.replace(TEXT, pairs=800_000, validation_pairs=100_000)
  assert settings_of(config_warnings(job_of(settings, text))) == ['train.eval_every']
  # "Most MT models are validated only on a few thousand sentences."
  few = dataclasses.replace(text, validation_pairs=3000)
  assert config_warnings(job_of(settings, few)) == []


@pytest.mark.parametrize(
  ('settings', 'questionable'),
  [
    ({**INVERSE_SQRT, 'optimizer.warmup_steps': 49}, 'optimizer.warmup_steps'),
    (
      {'optimizer.warmup_steps': 11_000, 'train.steps': 20_000},
      'optimizer.warmup_steps',
    ),
    ({'optimizer.noam_scale': 4.1}, 'optimizer.noam_scale'),
    ({'model.dropout': 0.5}, 'model.dropout'),
    ({'model.attention_dropout': 0.5}, 'model.attention_dropout'),
    ({'model.activation_dropout': 0.5}, 'model.activation_dropout'),
    ({'train.label_smoothing': 0.5}, 'train.label_smoothing'),
    ({'train.tokens_per_batch': 1792}, 'train.tokens_per_batch'),
    ({'train.patience': 100}, 'train.patience'),
    # As `Config.warnings` says.
    ({'train.steps': 4000}, ''),
  ],
)
def test_each_limit_has_a_separate_warning(settings, questionable):
  found = config_warnings(job_of(settings))
  assert settings_of(found) == [questionable]
  assert questionable in found[0]['finding']


@pytest.mark.parametrize(
  'settings',
  [
    {'optimizer.warmup_steps': 50, 'optimizer.noam_scale': 0.1},
    {'optimizer.noam_scale': 3.9},
    {'model.dropout': 0.4},
    {'train.label_smoothing': 0.4},
    {'train.tokens_per_batch': 2048},
    {'train.patience': 99},
    {'optimizer.warmup_steps': 16_000},
    # Training that continues from other weights.
    {'optimizer.noam_scale': 1e-3, 'train.init_from': 'runs/other'},
    # Where the schedule is a plugin, the rate is its own.
    {'optimizer.schedule': 'mine:schedule', 'optimizer.peak_learning_rate': 99.0},
  ],
)
def test_within_the_limits_nothing_is_questionable(settings):
  assert config_warnings(job_of(settings)) == []


def test_few_tokens_on_each_device_are_questionable():
  settings = {'train.tokens_per_batch': 32 * 256}
  (found,) = config_warnings(job_of(settings, devices=32))
  assert found['setting'] == 'train.tokens_per_batch'
  assert '32 devices 256 target tokens' in found['finding']
  assert config_warnings(job_of(settings, devices=8)) == []
  # The four devices of `tensor` share rows.
  assert config_warnings(job_of({**settings, 'mesh.tensor': 4}, devices=32)) == []


@pytest.mark.parametrize(
  ('change', 'questionable'),
  [
    ({}, []),
    ({'too_long': 30_000}, ['data.max_length']),
    ({'too_long': 10_000}, []),
    ({'source_tokens': 500_000, 'target_tokens': 500_000}, ['data.vocabulary_size']),
    ({'validation_pairs': 300_000}, ['train.eval_every']),
  ],
)
def test_settings_that_do_not_fit_the_text_are_questionable(change, questionable):
  text = dataclasses.replace(TEXT, **change)
  assert settings_of(config_warnings(job_of({}, text))) == questionable


def test_rare_checkpoints_and_a_full_disk_are_questionable():
  job = job_of({'train.checkpoint_every': 2000})
  assert config_warnings(job, step_seconds=5) == []
  assert settings_of(config_warnings(job, step_seconds=10)) == [
    'train.checkpoint_every'
  ]
  assert settings_of(config_warnings(job, is_full=True)) == ['train.keep']
