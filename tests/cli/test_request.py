"""An output never replaces a file of the split that is read."""

import pytest

from transformer.cli.request import resolve_splits
from transformer.data.config import DataConfig
from transformer.errors import UserError


def test_output_must_not_overwrite_a_file_of_the_split(tmp_path):
  data = DataConfig(
    'text', dir=str(tmp_path), source_language='en', target_language='de'
  )
  output = tmp_path / 'test.de'
  assert resolve_splits(data, (), str(output)) == ['test']
  output.write_bytes(b'a\n')
  with pytest.raises(UserError, match='would overwrite'):
    resolve_splits(data, (), str(output))
