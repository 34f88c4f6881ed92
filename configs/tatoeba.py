r"""Everyday sentences from Tatoeba, English to German, cased and untokenized.

  python train.py --config=configs/tatoeba.py --workdir=runs/tatoeba
  python eval.py --workdir=runs/tatoeba --checkpoint=latest --average=5
  python train.py --config=configs/tatoeba.py:cpu --workdir=runs/tatoeba-cpu
  python eval.py --workdir=runs/tatoeba-cpu

| config | machine | model | BLEU on test |
| --- | --- | --- | --- |
| tatoeba.py | NVIDIA H200; bfloat16, cuDNN | 37 million parameters | 33.36, after 7 minutes |
| tatoeba.py:cpu | two cores; float32 | 2.6 million parameters | 25.94, after 49 minutes |

With --config.train.steps=6500, stopped after an hour at 6,000 steps on faster cores, `cpu` reached
29.19: see docs/results.md.

The signature is nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0. The length penalty of
`cpu` was tuned for BLEU on valid:

| length penalty | 0.6 | 1.0 | 1.4 |
| --- | --- | --- | --- |
| BLEU | 37.63 | 37.64 | 37.72 |

BLEU is higher on valid than on test: valid has shorter sentences, from the same release as train.

data/tatoeba-en-de contains `train.en`, `valid.en`, `test.en` and the same files for `de`: 167,035
training pairs from the dump of May 2018, and 2,000 pairs each for validation and test. The test set
is from a later release. https://tatoeba.org/downloads has the sentences and the links between them,
under CC BY 2.0; https://github.com/Helsinki-NLP/Tatoeba-Challenge has splits. An English sentence
may have several German translations, so make sure that no sentence of valid or test is also in
train.
"""

from configs import base
from transformer.errors import UserError


def get_config(machine: str = 'gpu'):
  """Returns the config for a machine.

  Raises:
    UserError: the machine is neither `gpu` nor `cpu`.
  """
  if machine not in ('gpu', 'cpu'):
    raise UserError(
      f'configs/tatoeba.py takes gpu or cpu, such as configs/tatoeba.py:cpu; got {machine!r}'
    )
  config = base.get_config()
  config.data.source = 'text'
  config.data.dir = 'data/tatoeba-en-de'
  config.data.train = ('train',)
  config.data.valid = 'valid'
  config.data.test = 'test'
  config.data.source_language = 'en'
  config.data.target_language = 'de'
  config.data.max_length = 64

  config.model.norm_position = 'pre'
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
    config.model.attention_bias = 'all'
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
    config.model.attention_bias = 'all'
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
