r"""Everyday sentences of Tatoeba, English to German, cased and as people write them.

  python train.py --config=configs/tatoeba.py --workdir=runs/tatoeba
  python eval.py --workdir=runs/tatoeba --checkpoint=latest --average=5
  python train.py --config=configs/tatoeba.py:cpu --workdir=runs/tatoeba-cpu
  python eval.py --workdir=runs/tatoeba-cpu

The first is a model of 37 million parameters for one NVIDIA GPU, in bfloat16 with fused
attention; it has not been run to its end. `cpu` is one of 2.6 million, in float32, for two
cores: BLEU 25.94 on test (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0), in 49
minutes. The length penalty was chosen on valid, where 0.6, 1.0 and 1.4 give 37.63, 37.64 and
37.72; its sentences are shorter, and of the same release as those of train.

`train.en`, `valid.en`, `test.en` and the same in `de` belong in data/tatoeba-en-de: 167,035
pairs to train on, of the dump of May 2018, and 2,000 each to choose and to score by, the latter
of a later release. Sentences and the links between them are at https://tatoeba.org/downloads,
under CC BY 2.0; splits of them at https://github.com/Helsinki-NLP/Tatoeba-Challenge. Since an
English sentence may have several German ones, look that none of valid or test is in train too.
"""

from configs import base
from transformer.errors import UserError


def get_config(machine: str = 'gpu'):
  """The settings for a machine.

  Raises:
    UserError: it is neither `gpu` nor `cpu`.
  """
  if machine not in ('gpu', 'cpu'):
    raise UserError(f'configs/tatoeba.py takes gpu or cpu, such as configs/tatoeba.py:cpu; '
                    f'got {machine!r}')
  config = base.get_config()
  config.data.source = 'text'
  config.data.dir = 'data/tatoeba-en-de'
  config.data.train = ('train',)
  config.data.valid = 'valid'
  config.data.test = 'test'
  config.data.source_language = 'en'
  config.data.target_language = 'de'
  config.data.max_length = 64

  config.model.norm = 'pre'
  config.optimizer.schedule = 'inverse_sqrt'
  config.train.log_every = 100
  config.train.eval_every = 500
  config.train.checkpoint_every = 500
  config.train.keep = 5
  config.decode.bleu_tokenize = '13a'
  if machine == 'gpu':
    config.data.vocabulary_size = 10_000
    config.model.num_layers = 6
    config.model.model_dim = 512
    config.model.ff_dim = 1024
    config.model.num_heads = 8
    config.model.dropout = 0.3
    config.model.dtype = 'bfloat16'
    config.model.attention = 'cudnn'
    config.optimizer.peak_learning_rate = 1e-3
    config.optimizer.warmup_steps = 2000
    config.train.steps = 12_000
    config.train.tokens_per_batch = 16_384
  else:
    config.data.vocabulary_size = 6000
    config.model.num_layers = 4
    config.model.model_dim = 128
    config.model.ff_dim = 512
    config.model.num_heads = 4
    config.model.dropout = 0.1
    config.optimizer.schedule = 'cosine'
    config.optimizer.peak_learning_rate = 3e-3
    config.optimizer.warmup_steps = 600
    config.train.steps = 3000
    config.train.tokens_per_batch = 4096
    config.train.ema_decay = 0.998
    config.train.eval_every = 1000
    config.train.checkpoint_every = 250
    config.decode.alpha = 1.4
  return config
