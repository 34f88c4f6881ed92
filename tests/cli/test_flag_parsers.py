"""Settings on a command line may be lists, numbers like 1e3, and None."""

import dataclasses
import types
import typing

import pytest
from absl import flags
from ml_collections import config_flags

from transformer import files
from transformer.cli import shared_flags
from transformer.config import Config

pytestmark = pytest.mark.filterwarnings('ignore:the load_module:DeprecationWarning')


def read(config, *arguments):
  """Returns the nested dicts that train.py would read from a command line."""
  shared_flags.define_config()
  values, arguments = flags.FlagValues(), ['train.py', f'--config={config}', *arguments]
  config_flags.DEFINE_config_file(
    'config', None, '', flag_values=values, sys_argv=arguments
  )
  values(arguments)
  return values.config.to_dict()


def settings_of(*arguments):
  """Returns the settings that train.py would read from a command line."""
  return Config.from_dict(read('configs/text.py', *arguments))


@pytest.mark.parametrize(
  ('text', 'wanted'),
  [
    ('news,web', ('news', 'web')),
    ('news, a b', ('news', 'a b')),
    ('news', ('news',)),
    ('train[:9%],x', ('train[:9%]', 'x')),
    ('"a,b",c', ('a,b', 'c')),
    ("'a,b'", ('a,b',)),
    ("('news', 'web')", ('news', 'web')),
    ("['news']", ('news',)),
    ('news2019,2020', ('news2019', '2020')),
    ('-' * 9999 + '1', ('-' * 9999 + '1',)),
    ('"\\d"', ('\\d',)),
    ('1is 2', ('1is 2',)),
  ],
)
def test_lists_may_have_commas_or_be_tuples(text, wanted):
  config = settings_of(
    f'--config.data.train={text}',
    f'--config.train.objective_runs={text}',
    f'--config.data.valid={text}',
    '--config.train.objective=my:loss',
  )
  assert (config.data.train, config.train.objective_runs) == (wanted, wanted)
  assert tuple(config.data.valid_sets.values()) == wanted


def test_lists_of_numbers():
  config = settings_of(
    '--config.data.train=x,y', '--config.data.passes_per_epoch=1,0.5'
  )
  assert (config.data.train, config.data.passes_per_epoch) == (('x', 'y'), (1.0, 0.5))
  config = settings_of(
    '--config.data.train=x,y',
    '--config.data.valid',
    'z',
  )
  assert config.data.valid == 'z'


VALUES = {
  bool: ('True', 'False'),
  int: ('1000', '2e3'),
  float: ('0.25', '0.5'),
  str: ('a', 'b'),
  tuple: ('', 'x', 'x,y', "('x', 'z')", '[]', '(("x", 2.0),)', '()'),
}


def all_keys():
  """Yields the name and the type of each key; a key with several types has the last one."""
  for group, groups in typing.get_type_hints(Config).items():
    kinds = typing.get_type_hints(groups) if dataclasses.is_dataclass(groups) else {}
    for key, kind in kinds.items() or [('', groups)]:
      kind = (
        next(
          kind
          for kind in reversed(typing.get_args(kind) or [kind])
          if kind is not type(None)
        )
        if isinstance(kind, types.UnionType)
        else kind
      )
      yield f'{group}.{key}'.rstrip('.'), typing.get_origin(kind) or kind


@pytest.mark.parametrize('place', ['configs/base.py', 'run'])
def test_of_each_key_the_last_flag_counts(tmp_path, place):
  if place == 'run':
    files.write_sealed(tmp_path / 'config.json', Config().to_dict())
    place = f'configs/base.py:{tmp_path}'
  for round in range(len(VALUES[tuple])):
    first, last = (
      [
        f'--config.{name}={VALUES[kind][number % len(VALUES[kind])]}'
        for name, kind in all_keys()
      ]
      for number in (round, round + 1)
    )
    both, alone = read(place, *first, *last), read(place, *last)
    assert both == alone
    assert (
      both['train']['trackers']
      == both['data']['augmentations']
      == both['data']['user_defined_symbols']
    )


@pytest.mark.parametrize('nothing', ['', '()', '[]', 'None'])
def test_a_list_can_be_emptied(nothing):
  config = settings_of(
    '--config.data.passes_per_epoch=2',
    '--config.train.trackers=my:tracker',
    '--config.data.user_defined_symbols=<a>',
    *(
      f'--config.{key}={nothing}'
      for key in (
        'data.passes_per_epoch',
        'train.trackers',
        'data.user_defined_symbols',
      )
    ),
  )
  assert (
    config.data.passes_per_epoch,
    config.train.trackers,
    config.data.user_defined_symbols,
  ) == (
    (),
    (),
    (),
  )


def test_integers_and_keys_without_a_fixed_type():
  config = settings_of(
    '--config.train.steps=1e3',
    '--config.seed=1_000',
    '--config.model.key_dim=2',
    '--config.model.key_dim=None',
    '--config.model.decoder_layers=2.0',
  )
  assert (config.train.steps, config.seed) == (1000, 1000)
  assert (config.model.key_dim, config.model.decoder_layers) == (None, 2)
  assert type(config.train.steps) is type(config.model.decoder_layers) is int


@pytest.mark.parametrize(
  ('argument', 'fact'),
  [
    ('train.steps=1.5', 'expected an integer, such as 1000 or 1e3'),
    ('train.steps=10k', 'expected an integer'),
    ('train.steps=inf', 'an integer'),
    ('train.steps=None', 'train.steps must be of type int; got None'),
    ("data.train=('a',b)", 'text in a tuple needs quotes'),
    ('data.valid=[a', 'text in a tuple needs quotes'),
    (f'data.valid={"(" * 500}', 'text in a tuple needs quotes'),
  ],
)
def test_values_of_neither_type_are_rejected_in_one_line(argument, fact):
  with pytest.raises((flags.Error, ValueError), match=fact) as caught:
    settings_of(f'--config.{argument}')
  assert '\n' not in str(caught.value) and argument.partition('=')[0] in str(
    caught.value
  )
