"""The paper's config trains and scores WMT 2014, with smaller sizes."""

import json

import pytest

from transformer.config import Config, flatten
from transformer.data.corpora import open_corpora
from transformer.data.text.sources import open_corpus
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.runs import run_directory

PAIRS = [
  (f'{zahl} kleine hunde laufen {wie} .', f'{number} small dogs run {how} .')
  for zahl, number in (('zwei', 'two'), ('drei', 'three'), ('sieben', 'seven'))
  for wie, how in (
    ('schnell', 'fast'),
    ('fort', 'away'),
    ('herum', 'around'),
    ('heim', 'home'),
    ('über das gras', 'over the grass'),
  )
]
SMALLER = {  # The sizes of the tiny run, so that the tests compile one step for both.
  'data.vocabulary_size': 300,
  'data.max_length': 64,
  'model.num_layers': 1,
  'model.model_dim': 8,
  'model.ff_dim': 11,
  'model.num_heads': 2,
  'train.tokens_per_batch': 320,
  'train.steps': 6,
  'train.eval_every': 6,
  'train.checkpoint_every': 1,
}


@pytest.mark.long
def test_the_papers_config_trains_and_scores_its_data_set(
  train, evaluate, write_wmt14, tmp_path
):
  smaller, config = (
    {**SMALLER, 'data.dir': str(tmp_path)},
    '--config=configs/wmt14.py:base,en-de',
  )
  message = train.rejects(
    config, f'--workdir={tmp_path}/run', f'--config.data.dir={tmp_path}'
  )
  assert message == (
    f'wmt14_translate/de-en is not prepared in {tmp_path}; prepare it as docs/data.md says, or '
    f'set --config.data.dir to its folder'
  )
  write_wmt14(tmp_path, train=PAIRS[:11], validation=PAIRS[11:13], test=PAIRS[13:])
  status, _, err = train(
    config,
    f'--workdir={tmp_path}/run',
    *(f'--config.{name}={value}' for name, value in smaller.items()),
  )
  assert status == 0, err
  assert 'training a vocabulary of 300 pieces' in err
  settings = run_directory.read_config_dict(tmp_path / 'run')
  kept = {
    name: value for name, value in flatten(settings).items() if name not in smaller
  }
  paper = {
    'data.tfds_name': 'wmt14_translate/de-en',
    'data.source_language': 'en',
    'data.target_language': 'de',
    'model.dropout': 0.1,
    'model.norm_position': 'post',
    'optimizer.schedule': 'noam',
    'optimizer.warmup_steps': 4000,
    'train.label_smoothing': 0.1,
    'train.keep': 5,
    'decode.beam_size': 4,
    'decode.alpha': 0.6,
    'decode.max_extra_length': 50,
  }
  assert kept.items() >= paper.items()

  about = json.loads((tmp_path / 'run' / 'run.json').read_text('utf-8'))
  data = Config.from_dict(settings).data
  assert about['data']['train/train'] == open_corpus(data, 'train').fingerprint
  assert about['data']['valid'] == open_corpus(data, 'validation').fingerprint
  assert about['counts']['train/train']['kept'] == 11
  assert (
    about['data']['vocabulary']
    == Vocabulary.train(open_corpora(data).training_text(11), 300).fingerprint
  )

  status, out, err = evaluate(
    f'--workdir={tmp_path}/run', '--checkpoint=latest', '--average=5'
  )
  assert status == 0, err
  (path,) = (tmp_path / 'run' / 'eval').glob('*.json')
  assert path.name == 'test.step6.average5.beam4.alpha0.6.json' and str(path) in out
  result = json.loads(path.read_text('utf-8'))
  assert (result['steps'], result['sentences']) == ([2, 3, 4, 5, 6], 2)
