"""Plugins are found, imported and known by their source."""

import pytest

from transformer import plugins
from transformer.errors import UserError


@pytest.fixture
def here(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  # Python caches imported modules.
  monkeypatch.setattr('sys.path', ['/nowhere'])
  return tmp_path


def test_the_digest_is_of_a_module_or_of_all_of_a_package_and_imports_neither(here):
  (here / 'own_module.py').write_text('raise 1')
  (here / 'own_package').mkdir()
  for name in ('__init__', 'inner'):
    (here / f'own_package/{name}.py').write_text('')
  kinds = {'own_module:f': 'metric', 'own_package:f': 'source'}
  first = plugins.digests(kinds)
  assert list(first) == list(kinds) and {len(digest) for digest in first.values()} == {
    64
  }
  (here / 'own_package/inner.py').write_text('x = 1')
  again = plugins.digests(kinds)
  assert [again[spec] == first[spec] for spec in kinds] == [True, False]


@pytest.mark.parametrize(
  ('spec', 'fact'),
  [
    ('name', 'a metric must be given as MODULE:NAME'),
    (':f', 'MODULE:NAME'),
    ('m:', 'MODULE:NAME'),
    ('no_such_module:f', 'the metric no_such_module:f cannot be'),
  ],
)
def test_user_error_is_a_one_line_message(here, spec, fact):
  for use in (
    lambda: plugins.load(spec, 'metric'),
    lambda: plugins.digests({spec: 'metric'}),
  ):
    with pytest.raises(UserError) as caught:
      use()
    assert '\n' not in str(caught.value) and (
      fact in str(caught.value) or ':f' in spec[1:]
    )


def test_a_plugin_that_fails_is_a_one_line_error_that_names_it():
  failure = plugins.as_user_error('the metric m:f failed')
  for error, message in (
    (SystemExit('a\nb'), 'the metric m:f failed: SystemExit: a b'),
    (StopIteration(3), 'the metric m:f failed: StopIteration: 3'),
    (UserError('mine'), 'mine'),
  ):

    @failure
    def plugin(number, error=error):
      if number:
        raise error
      return number

    assert plugin(0) == 0
    with pytest.raises(UserError) as caught:
      plugin(1)
    assert str(caught.value) == message
