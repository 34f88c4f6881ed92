"""Settings on a command line may be lists, numbers like 1e3, and None."""

import pytest
from absl import flags
from ml_collections import config_flags

from transformer.commands import shared_flags
from transformer.config import Config

pytestmark = pytest.mark.filterwarnings('ignore:the load_module:DeprecationWarning')


def settings_of(*arguments):
  """Returns the settings that train.py would read from a command line."""
  shared_flags.define_config()
  values, arguments = flags.FlagValues(), ['train.py', '--config=configs/text.py', *arguments]
  config_flags.DEFINE_config_file('config', None, '', flag_values=values, sys_argv=arguments)
  values(arguments)
  return Config.from_dict(values.config.to_dict())


@pytest.mark.parametrize(('text', 'wanted'), [
    ('news,web', ('news', 'web')), ('news, a b', ('news', 'a b')), ('news', ('news',)),
    ('train[:9%],x', ('train[:9%]', 'x')), ('"a,b",c', ('a,b', 'c')), ("'a,b'", ('a,b',)),
    ("('news', 'web')", ('news', 'web')), ("['news']", ('news',)),
    ('news2019,2020', ('news2019', '2020')), ('-' * 9999 + '1', ('-' * 9999 + '1',)),
    ('"\\d"', ('\\d',)), ('1is 2', ('1is 2',))])
def test_lists_may_have_commas_or_be_tuples(text, wanted):
  config = settings_of(f'--config.data.train={text}', f'--config.train.objective_runs={text}',
                       f'--config.data.valid={text}', '--config.train.objective=my:loss')
  assert (config.data.train, config.train.objective_runs) == (wanted, wanted)
  assert tuple(config.data.valid_sets.values()) == wanted


def test_lists_of_numbers_and_flags_that_are_given_twice():
  for arguments in (['=x,y'], ['=x', '=y']):
    config = settings_of(*(f'--config.data.train{argument}' for argument in arguments),
                         '--config.data.train_weights=1,0.5')
    assert (config.data.train, config.data.train_weights) == (('x', 'y'), (1.0, 0.5))
  config = settings_of('--config.data.train=x,y', '--config.data.train_stages=(0,1,0),(5,1,2)',
                       '--config.data.valid', 'z')
  assert config.data.train_stages == ((0, 1, 0), (5, 1, 2)) and config.data.valid == 'z'


def test_whole_numbers_and_keys_that_are_left_open():
  config = settings_of('--config.train.steps=1e3', '--config.seed=1_000',
                       '--config.model.key_dim=2', '--config.model.key_dim=None',
                       '--config.model.decoder_layers=2.0')
  assert (config.train.steps, config.seed) == (1000, 1000)
  assert (config.model.key_dim, config.model.decoder_layers) == (None, 2)
  assert type(config.train.steps) is type(config.model.decoder_layers) is int


@pytest.mark.parametrize(('argument', 'fact'), [
    ('train.steps=1.5', 'a whole number is wanted, such as 1000 or 1e3'),
    ('train.steps=10k', 'a whole number is wanted'), ('train.steps=inf', 'a whole number'),
    ('train.steps=None', 'train.steps must be of type int; got None'),
    ("data.train=('a',b)", 'text in a tuple needs quotes'),
    ("data.valid=[a", 'text in a tuple needs quotes'),
    (f'data.valid={"(" * 500}', 'text in a tuple needs quotes')])
def test_what_is_neither_is_refused_in_one_line(argument, fact):
  with pytest.raises((flags.Error, ValueError), match=fact) as caught:
    settings_of(f'--config.{argument}')
  assert '\n' not in str(caught.value) and argument.partition('=')[0] in str(caught.value)
