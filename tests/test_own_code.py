"""Parts of one's own are found, imported and known by their source."""

import pytest

from transformer import own_code
from transformer.errors import UserError


@pytest.fixture
def here(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr('sys.path', ['/nowhere'])  # Python itself keeps what it has imported.
  return tmp_path


def test_the_digest_is_of_a_module_or_of_all_of_a_package_and_imports_neither(here):
  (here / 'own_module.py').write_text('raise 1')
  (here / 'own_package').mkdir()
  for name in ('__init__', 'inner'):
    (here / f'own_package/{name}.py').write_text('')
  first = own_code.digests({'own_module:f': 'metric', 'own_package:f': 'source'})
  assert list(first) == ['own_module:f', 'own_package:f']
  assert [len(digest) for digest in first.values()] == [64, 64]
  (here / 'own_package/inner.py').write_text('x = 1')
  again = own_code.digests({'own_module:f': 'metric', 'own_package:f': 'source'})
  assert again['own_module:f'] == first['own_module:f']
  assert again['own_package:f'] != first['own_package:f']


@pytest.mark.parametrize(('spec', 'fact'), [
    ('name', 'a metric must be given as MODULE:NAME'), (':f', 'MODULE:NAME'), ('m:', 'MODULE:NAME'),
    ('no_such_module:f', 'the metric no_such_module:f cannot be'),
])
def test_a_mistake_is_one_line(here, spec, fact):
  for use in (own_code.load, own_code.digest):
    with pytest.raises(UserError, match=fact) as caught:
      use(spec, 'metric')
    assert '\n' not in str(caught.value)
