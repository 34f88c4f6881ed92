"""Every invalid setting of `config.data` is refused in a line that names it."""

import dataclasses
import re

import pytest

from transformer.data.config import SMALLEST_VOCABULARY, DataConfig
from transformer.errors import UserError

TEXT = {'source': 'text', 'dir': 'somewhere'}


@pytest.mark.parametrize(('changes', 'message'), [
    ({'source': 'csv'}, 'data.source must be one of tfds, text, or MODULE:CLASS'),
    ({'name': ''}, 'data.name must name a TFDS translation set'),
    ({'source': 'text'}, 'data.dir must name the folder of the text files; set --config.data.dir'),
    ({'source_language': ''}, 'data.source_language and data.target_language must both be set'),
    ({'target_language': ''}, 'data.source_language and data.target_language must both be set'),
    ({'target_language': 'en'}, "must differ; both are 'en'"),
    ({'train': ()}, 'data.train must name at least one corpus; got none'),
    ({'train': ('a', '')}, "must not hold an empty name; got train=('a', ''), valid='validation'"),
    ({'valid': ''}, "must not hold an empty name; got train=('train',), valid=''"),
    ({'valid': ()}, "must not hold an empty name; got train=('train',), valid=()"),
    ({'valid': ('a', '')}, "got train=('train',), valid=('a', '')"),
    ({'valid': ('a', 'b', 'a')}, "data.valid must name each set once; got ('a', 'b', 'a')"),
    ({'train_weights': (1.0, 2.0)}, 'one number for each corpus of data.train; got 2 for 1'),
    ({'train': ('a', 'b'), 'train_weights': (1.0,)}, 'got 1 for 2'),
    ({'train_weights': (0.0,)}, 'data.train_weights must be positive; got (0.0,)'),
    ({'train_weights': (-1.0,)}, 'data.train_weights must be positive; got (-1.0,)'),
    ({'train_weights': (float('inf'),)}, 'data.train_weights must be positive; got (inf,)'),
    ({'train_weights': (float('nan'),)}, 'data.train_weights must be positive; got (nan,)'),
    *(({'train': ('a', 'b'), 'train_stages': stages}, fact) for stages, fact in (
        (((0.0, 1.0),), 'for each of the 2 corpora of data.train; got (0.0, 1.0)'),
        (((0.0, 1.0, -1.0),), 'must be at least 0, and one of them above 0; got (0.0, 1.0, -1.0)'),
        (((0.0, 0.0, 0.0),), 'one of them above 0; got (0.0, 0.0, 0.0)'),
        (((5.0, 1.0, 1.0),), 'after ascending numbers of updates, the first after 0; got 5'),
        (((0.0, 1.0, 1.0), (9.0, 1.0, 2.0), (9.0, 1.0, 3.0)), 'got 0, 9, 9'),
        (((0.0, 1.0, 1.0), (0.5, 1.0, 2.0)), 'got 0, 0.5'))),
    ({'train_weights': (2.0,), 'train_stages': ((0.0, 1.0),)}, 'exclude each other; got both'),
    ({'source_vocabulary': 'x'}, 'set --config.data.shared_vocabulary=False, or leave them out'),
    ({'source_vocabulary_size': 300}, 'set --config.data.shared_vocabulary=False'),
    ({'shared_vocabulary': False, 'source_vocabulary_size': 0},
     'data.source_vocabulary_size must be at least 264'),
    ({'vocabulary_size': SMALLEST_VOCABULARY - 1}, 'data.vocabulary_size must be at least 264'),
    *(({'max_length_ratio': ratio}, 'data.max_length_ratio must be 0 (no limit), or at least 1; '
                                    f'got {ratio}')
      for ratio in (-1.0, 0.99, float('nan'))),
    ({'max_length': 1}, 'data.max_length must be at least 2; got 1'),
])
def test_invalid_settings_are_refused(changes, message):
  with pytest.raises(UserError, match=re.escape(message)) as raised:
    DataConfig(**changes)
  assert '\n' not in str(raised.value)


@pytest.mark.parametrize('changes', [
    TEXT, {**TEXT, 'name': ''}, {**TEXT, 'source': 'm:Trees'}, {'dir': 'elsewhere'},
    {'max_length': 2},
    {'vocabulary_size': SMALLEST_VOCABULARY}, {'train_weights': (0.5,)},
    {'max_length_ratio': 1.0}, {'max_length_ratio': 0.0},
    {'train': ('a', 'b'), 'train_weights': (0.001, 7.0)},
    {'train': ('a', 'b'), 'train_stages': ((0.0, 0.0, 1.0), (7.0, 2.0, 0.0))},
])
def test_what_lies_on_the_right_side_of_a_bound_is_taken(changes):
  config = DataConfig(**changes)
  assert {name: getattr(config, name) for name in changes} == changes
  with pytest.raises(dataclasses.FrozenInstanceError):
    config.max_length = 3


@pytest.mark.parametrize(('valid', 'sets'), [
    ('news', {'valid': 'news'}), (('news',), {'valid': 'news'}),
    (('news', 'talks', 'sub/web'), {'valid': 'news', 'valid/talks': 'talks',
                                    'valid/sub/web': 'sub/web'})])
def test_the_first_validation_set_has_no_name_of_its_own(valid, sets):
  config = DataConfig(valid=valid)
  assert list(config.valid_sets.items()) == list(sets.items())
