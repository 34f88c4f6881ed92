"""Edge-case text is trained on and translated line by line, or an error names its line.

EDGE_CASE_TEXT=all pytest tests/robustness/test_edge_case_text.py
trains on each kind; it takes six minutes.
"""

import os
import re

import pytest

from tests.robustness.edge_case_text import kinds, number_of_lines
from transformer.data.config import DataConfig
from transformer.data.text.text_files import TextCorpus, read_lines
from transformer.errors import UserError

KINDS = kinds()


def write(folder, kind):
  for split in ('train', 'valid', 'test'):
    for language in ('en', 'de'):
      (folder / f'{split}.{language}').write_bytes(kind.file)


@pytest.mark.long
@pytest.mark.parametrize(
  'kind',
  KINDS if 'EDGE_CASE_TEXT' in os.environ else [KINDS[0], KINDS[-1]],
  ids=lambda kind: kind.name,
)
def test_training_and_eval_accept_all_valid_kinds(
  train, evaluate, folder, trained, tmp_path, kind
):
  write(tmp_path, kind)
  run, fact = tmp_path / 'run', f'must be UTF-8; line {kind.names_line} is not'
  start = (
    f'--config={folder}/tiny.py',
    f'--workdir={run}',
    f'--config.data.dir={tmp_path}',
    '--config.data.vocabulary_size=420',
  )
  texts = f'--source={tmp_path}/test.en', f'--reference={tmp_path}/test.de'
  if kind.names_line:
    assert f'train.en {fact}' in train.rejects(*start)
    assert f'test.en {fact}' in evaluate.rejects(f'--workdir={trained}', *texts)
    return
  status, _, err = train(*start)
  assert status == 0, err
  status, out, err = evaluate(f'--workdir={run}', *texts, f'--output={tmp_path}/out')
  assert status == 0, err
  translations = (tmp_path / 'out').read_bytes()
  translations.decode('utf-8')
  assert translations.count(b'\n') == number_of_lines(kind.file)
  scored = re.search(r': (\d+) sentences in .*\n  BLEU +\d+\.\d\d ', out)
  assert scored and int(scored[1]) == number_of_lines(kind.file), out


@pytest.mark.parametrize('kind', KINDS, ids=[kind.name for kind in KINDS])
def test_a_file_is_read_or_an_error_names_its_line(tmp_path, kind):
  write(tmp_path, kind)
  data = DataConfig(
    'text', dir=str(tmp_path), source_language='en', target_language='de'
  )
  reads = (
    (lambda: read_lines(tmp_path / 'train.en')),
    (lambda: TextCorpus(data, 'train')[:]),
  )
  if kind.names_line:
    for read in reads:
      with pytest.raises(
        UserError, match=f'train.en must be UTF-8; line {kind.names_line} is not'
      ):
        read()
    return
  lines, pairs = (read() for read in reads)
  assert len(lines) == number_of_lines(kind.file)
  assert pairs == list(zip(lines, lines, strict=True))
