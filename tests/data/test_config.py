"""Every invalid setting of `config.data` is rejected in a line that names it."""

import dataclasses
import re

import pytest

from transformer.data.config import SMALLEST_VOCABULARY, DataConfig
from transformer.errors import UserError

TEXT = {'source': 'text', 'dir': 'somewhere'}


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (
      {'source': 'text'},
      'data.dir must name the folder of the text files; set --config.data.dir',
    ),
    *(
      (
        code,
        'data.source_language and data.target_language must both be set, and differ',
      )
      for code in (
        {'source_language': ''},
        {'target_language': ''},
        {'target_language': 'en'},
      )
    ),
    *(
      (
        {'train': names},
        f'data.train must name at least one corpus, and each once; got {names}',
      )
      for names in ((), ('a', ''), ('a', 'b', 'a'))
    ),
    *(
      ({'valid': names}, 'data.valid must name at least one corpus, and each once')
      for names in ('', (), ('a', ''), ('a', 'b', 'a'))
    ),
    *(
      ({'passes_per_epoch': weights}, 'one above 0; got')
      for weights in ((1.0, 2.0), (0.0,), (float('inf'),), (float('nan'),))
    ),
    *(
      ({'train': ('a', 'b'), 'passes_per_epoch': weights}, fact)
      for weights, fact in (
        ((1.0,), 'one number per corpus of data.train, all at least 0'),
        ((1.0, -1.0), 'one above 0; got (1.0, -1.0)'),
      )
    ),
    (
      {'source_vocabulary': 'x'},
      'set --config.data.shared_vocabulary=False, or remove them',
    ),
    ({'source_vocabulary_size': 300}, 'set --config.data.shared_vocabulary=False'),
    (
      {'shared_vocabulary': False, 'source_vocabulary_size': 0},
      'data.source_vocabulary_size must be at least 264',
    ),
    (
      {'vocabulary_size': SMALLEST_VOCABULARY - 1},
      'data.vocabulary_size must be at least 264',
    ),
    *(
      (
        {'max_length_ratio': ratio},
        f'data.max_length_ratio must be at least 0; got {ratio}',
      )
      for ratio in (-1.0, float('nan'))
    ),
    *(
      (
        {'user_defined_symbols': symbols},
        f'symbols must be distinct, without whitespace, and no names'
        f' of control symbols or bytes, such as </s> or <0x41>; got {symbols[-1]!r}',
      )
      for symbols in (
        ('',),
        ('<a b>',),
        ('x\u00a0',),
        ('</s>',),
        ('<pad>',),
        ('<0x0A>',),
        ('a\u2581',),
        ('<a>', '<b>', '<a>')[::2],
      )
    ),
    ({'vocabulary_kind': 'word'}, 'data.vocabulary_kind must be one of bpe, unigram'),
    (
      {'normalization': 'nfc'},
      'data.normalization must be one of identity, nmt_nfkc, nfkc',
    ),
    ({'max_length': 1}, 'data.max_length must be at least 2; got 1'),
  ],
)
def test_invalid_settings_are_rejected(changes, message):
  with pytest.raises(UserError, match=re.escape(message)) as raised:
    DataConfig(**changes)
  assert '\n' not in str(raised.value)


@pytest.mark.parametrize(
  'changes',
  [
    {**TEXT, 'tfds_name': ''},
    {**TEXT, 'source': 'm:Trees'},
    {'max_length': 2},
    {'vocabulary_size': SMALLEST_VOCABULARY},
    {'train': ('a', 'b'), 'passes_per_epoch': (0.001, 7.0)},
    {'user_defined_symbols': ('<a>', '\u2581a', '</s', '<0x4>', 'a,b', '"')},
    {'train': ('a', 'b'), 'passes_per_epoch': (0.0, 1.0)},
  ],
)
def test_values_within_the_bounds_are_accepted(changes):
  config = DataConfig(**changes)
  assert {name: getattr(config, name) for name in changes} == changes
  with pytest.raises(dataclasses.FrozenInstanceError):
    config.max_length = 3


@pytest.mark.parametrize(
  ('valid', 'sets'),
  [
    ('news', {'valid': 'news'}),
    (('news',), {'valid': 'news'}),
    (
      ('news', 'talks', 'sub/web'),
      {'valid': 'news', 'valid/talks': 'talks', 'valid/sub/web': 'sub/web'},
    ),
  ],
)
def test_the_first_validation_set_has_no_separate_name(valid, sets):
  config = DataConfig(valid=valid)
  assert list(config.valid_sets.items()) == list(sets.items())
