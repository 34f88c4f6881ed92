"""Hostile text is trained on and translated line by line, or an error names its line.

HOSTILE_TEXT=all pytest tests/faults/test_hostile_text.py trains on each kind; it takes six minutes.
"""

import os

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
@pytest.mark.parametrize('kind', KINDS if 'HOSTILE_TEXT' in os.environ else KINDS[:1],
                         ids=lambda kind: kind.name)
def test_training_and_eval_accept_all_valid_kinds(tmp_path, kind):
  hostile_text.attempt(kind, tmp_path)


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
