"""A run on several corpora trains with an objective that sees which corpus a token is from."""

import math

import numpy as np
import pytest

from tests.data.test_corpora import text, write
from transformer.config import Config
from transformer.data.corpora import make_run_batches, open_corpora
from transformer.data.vocabulary import vocabularies
from transformer.errors import UserError
from transformer.experiment.train_loop import train_run
from transformer.runs.metrics_file import read_metrics
from transformer.runs.run_directory import read_record
from transformer.training.objective import make_objective

STEPS = 4


@pytest.fixture(scope='module')
def folder(doc_plugins, tmp_path_factory):
  folder = tmp_path_factory.mktemp('mixed')
  for seed, (name, count) in enumerate({'news': 40, 'web': 20, 'valid': 3}.items()):
    write(folder, name, *(text(count, 2 * seed + side) for side in range(2)))
  return folder


def config_of(folder, train=('news', 'web'), factors=(1.0, 0.5)) -> Config:
  return Config.from_dict(
    {
      'data': {
        'source': 'text',
        'dir': str(folder),
        'train': train,
        'valid': 'valid',
        'source_language': 'en',
        'target_language': 'de',
        'vocabulary_size': 290,
        'max_length': 19,
      },
      'model': {'num_layers': 1, 'model_dim': 8, 'ff_dim': 11, 'num_heads': 2},
      'train': {
        'tokens_per_batch': 8 * 19,
        'steps': STEPS,
        'log_every': 2,
        'eval_every': STEPS,
        'checkpoint_every': STEPS,
        'objective': ('my_mixture:by_corpus', *factors),
      },
      'optimizer': {'num_microbatches': 2},
      'decode': {'max_extra_length': 2, 'batch_size': 4},
    }
  )


@pytest.mark.long
def test_the_example_of_the_page_logs_the_loss_of_each_corpus(folder, tmp_path):
  config = config_of(folder)
  train_run(config, tmp_path)
  vocabulary = vocabularies.load(tmp_path, read_record(tmp_path)['data'])
  encoded = make_run_batches(
    config.data,
    open_corpora(config.data),
    vocabulary,
    config.train.tokens_per_batch,
    config.seed,
  )
  batches = list(encoded.batches.iterate(0, STEPS))
  lines = [
    line for line in read_metrics(tmp_path / 'metrics.jsonl') if 'train/loss' in line
  ]
  assert [line['step'] for line in lines] == [2, 4]
  for line in lines:
    numbers = np.concatenate(
      [
        batch.corpus_ids[batch.target_segments > 0]
        for batch in batches[line['step'] - 2 : line['step']]
      ]
    )
    for number, name in enumerate(config.data.train):
      assert line[f'train/{name}/tokens'] == pytest.approx(
        np.mean(numbers == number), rel=1e-6
      )
    news, web = (line[f'train/{name}/nll'] for name in config.data.train)
    assert news + web == pytest.approx(math.log(line['train/perplexity']), rel=1e-6)
    assert news + 0.5 * web == pytest.approx(line['train/loss'], rel=1e-6)
    assert 0 < line['train/web/tokens'] < 1


@pytest.mark.parametrize(
  ('train', 'factors'), [(('news',), (1.0,)), (('news', 'web'), (1.0,))]
)
def test_the_example_of_the_page_needs_a_factor_for_each_of_several_corpora(
  folder, train, factors
):
  with pytest.raises(
    UserError, match='by_corpus takes a factor for each of several corpora'
  ):
    make_objective(config_of(folder, train, factors), None)
