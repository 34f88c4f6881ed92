"""An output never replaces a file of the split that is read."""

import pytest

from transformer.commands.request import chosen_splits
from transformer.data.config import DataConfig
from transformer.errors import UserError


def test_a_file_of_the_split_is_no_output(tmp_path):
  data = DataConfig(
    'text', dir=str(tmp_path), source_language='en', target_language='de'
  )
  output = tmp_path / 'test.de'
  assert chosen_splits(data, (), str(output)) == ['test']
  output.write_bytes(b'a\n')
  with pytest.raises(UserError, match='would overwrite'):
    chosen_splits(data, (), str(output))
