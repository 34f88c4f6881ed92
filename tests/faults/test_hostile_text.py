"""The short form of hostile_text.py: one file with all valid kinds, and the reader on each."""

import pytest

from tests.faults import hostile_text
from transformer.data.config import DataConfig
from transformer.data.text.text_files import TextCorpus, read_lines
from transformer.errors import UserError

KINDS = hostile_text.kinds()


def open_text(folder):
  return TextCorpus(DataConfig('text', dir=str(folder), source_language='en', target_language='de'),
                    'train')


@pytest.mark.long
def test_training_and_eval_accept_all_valid_kinds(tmp_path):
  kind = KINDS[0]
  lines = hostile_text.number_of_lines(kind.file)
  assert not kind.file.endswith(b'\n') and kind.file.startswith(b'\xef\xbb\xbf')
  assert hostile_text.attempt(kind, tmp_path) == f'{lines} lines, {lines} translations'


@pytest.mark.parametrize('kind', KINDS, ids=[kind.name for kind in KINDS])
def test_a_file_is_read_or_an_error_names_its_line(tmp_path, kind):
  paths = [tmp_path / f'train.{language}' for language in ('en', 'de')]
  for path in paths:
    path.write_bytes(kind.file)
  if kind.names_line:
    for read in (lambda: read_lines(paths[0]), lambda: open_text(tmp_path)):
      with pytest.raises(UserError, match=f'train.en must be UTF-8; line {kind.names_line} is not'):
        read()
    return
  lines = read_lines(paths[0])
  assert len(lines) == hostile_text.number_of_lines(kind.file)
  pairs = open_text(tmp_path)[:]
  assert pairs == list(zip(lines, lines, strict=True))
