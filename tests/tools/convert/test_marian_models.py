"""A folder shaped like a published MarianMT model becomes a run that is scored and trained on."""

import shutil

import numpy as np
import pytest

from tests.tools.convert.marian_folders import known_text, write_folder
from transformer.runs.loading import load_run

MODEL = {'num_layers': 2, 'model_dim': 14, 'ff_dim': 22, 'num_heads': 2, 'activation': 'silu',
         'attention_bias': 'all', 'output_bias': True, 'share_embeddings': False}


@pytest.fixture(scope='module')
def export(start_command):
  yield from start_command('transformer.tools.convert.__main__')


@pytest.mark.long
def test_it_is_scored_and_fine_tuned(export, train, evaluate, folder, tmp_path):
  given = tmp_path / 'opus'
  given.mkdir()
  write_folder(given)
  status, out, err = export('--format=run', f'--weights={given}', f'--output={tmp_path}/run')
  assert status == 0 and 'a run of weights alone, of a folder for transformers' in out, err
  run = load_run(tmp_path / 'run')
  text = tmp_path / 'text'
  text.mkdir()
  for language, lines in zip(('en', 'fr'), known_text(given), strict=True):
    for name in ('train', 'valid', 'test'):
      (text / f'{name}.{language}').write_text('\n'.join([*lines[:12], '']), 'utf-8')
  status, out, err = evaluate(f'--workdir={tmp_path}/run', f'--source={text}/test.en',
                              f'--reference={text}/test.fr')
  assert status == 0 and 'BLEU' in out + err, err
  settings = [f'--config.model.{name}={value}' for name, value in MODEL.items()]
  sizes = run.config.data.sizes
  status, _, err = train(
      f'--config={folder}/tiny.py', f'--workdir={tmp_path}/tuned', f'--config.data.dir={text}',
      '--config.data.target_language=fr', '--config.data.shared_vocabulary=False',
      f'--config.data.vocabulary_size={sizes["vocabulary"]}',
      f'--config.data.source_vocabulary_size={sizes["source_vocabulary"]}',
      f'--config.train.init_from={tmp_path}/run', *settings)
  assert status == 0, err
  tuned = load_run(tmp_path / 'tuned')
  change = np.asarray(tuned.params['output_bias']) - np.asarray(run.params['output_bias'])
  assert np.abs(change).max() > 0 and np.all(np.isfinite(change))
  assert tuned.vocabulary.target.fingerprint == run.vocabulary.target.fingerprint
  shutil.rmtree(tmp_path / 'tuned')
