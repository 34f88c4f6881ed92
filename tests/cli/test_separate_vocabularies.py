"""All commands know a run that has a vocabulary for each language."""

import shutil

import pytest

from tests.command_fixtures import ENGLISH, GERMAN, SEPARATE
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.runs.loading import load_run

pytestmark = pytest.mark.long
FILES = ['vocabulary.source.model', 'vocabulary.target.model']


def names(folder):
  return sorted(path.name for path in folder.iterdir() if 'vocabulary' in path.name)


def test_the_run_keeps_both_and_its_tables_have_their_sizes(separate):
  assert names(separate) == FILES
  loaded = load_run(separate)
  for side, lines, size in (('source', ENGLISH, 290), ('target', GERMAN, 310)):
    vocabulary = getattr(loaded.vocabulary, side)
    assert vocabulary.model_bytes == Vocabulary.train(lines * 3, size).model_bytes
    assert loaded.params[f'{side}_embedding']['table'].shape == (size, 8)


def test_training_resumes_only_with_both_vocabularies(
  train, separate, folder, tmp_path
):
  copy = shutil.copytree(separate, tmp_path / 'run')
  config = [f'--config={folder}/tiny.py', f'--workdir={copy}', *SEPARATE]
  assert 'data.shared_vocabulary' in train.rejects(*config[:2], *SEPARATE[1:3])
  status, _, err = train(*config, '--config.train.steps=3')
  assert status == 0 and 'vocabulary of' not in err, err


def test_another_run_starts_from_it_if_it_has_the_same(
  train, separate, folder, tmp_path
):
  config = [f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run']
  origin = f'--config.train.init_from={separate}'
  status, _, err = train(*config, *SEPARATE, origin)
  assert status == 0, err
  for name in FILES:
    assert (tmp_path / 'run' / name).read_bytes() == (separate / name).read_bytes()


def test_it_translates(evaluate, separate, trained, folder):
  source = f'--source={folder}/test.en'
  status, out, err = evaluate(f'--workdir={separate}', source)
  assert status == 0 and out.count('\n') == 2, err
  rejected = evaluate.rejects(f'--workdir={separate}', f'--ensemble={trained}', source)
  assert 'must share a vocabulary' in rejected
