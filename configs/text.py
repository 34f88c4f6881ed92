r"""Your own text: line-aligned files train, valid and test in one folder.

  python train.py --config=configs/text.py --workdir=runs/mine --config.data.dir=DIR \
      --config.data.source_language=en --config.data.target_language=de
  python eval.py --workdir=runs/mine

A model of 9 million parameters, for about ten thousand to a million pairs. It is meant for a GPU.
For two CPU cores, make it smaller:

      --config.model.model_dim=128 --config.model.ff_dim=512 \
      --config.train.tokens_per_batch=4096 --config.train.steps=4000

| on two CPU cores (20a1d23) | target tokens a second | all updates |
| --- | --- | --- |
| this model | 1,600 | 27 hours |
| the smaller one | 3,800 | 72 minutes |

On an NVIDIA GPU, add --config.model.dtype=bfloat16 --config.model.attention=cudnn.

The BLEU to expect depends on the text. Any other key can be set in the same way.
"""

from configs import base


def get_config():
  """Returns the settings."""
  config = base.get_config()
  config.data.source = 'text'
  config.data.dir = 'data/text'
  config.data.train = ('train',)
  config.data.valid = 'valid'
  config.data.test = 'test'
  config.data.source_language = 'en'
  config.data.target_language = 'de'
  config.data.vocabulary_size = 8000
  config.data.max_length = 128

  config.model.num_layers = 4
  config.model.model_dim = 256
  config.model.ff_dim = 1024
  config.model.num_heads = 4
  config.model.attention_bias = 'all'
  config.model.dropout = 0.2
  config.model.norm = 'pre'

  config.optimizer.schedule = 'inverse_sqrt'
  config.optimizer.peak_learning_rate = 2e-3
  config.optimizer.warmup_steps = 2000

  config.train.steps = 20_000
  config.train.tokens_per_batch = 8192
  config.train.log_every = 100
  config.train.eval_every = 1000
  config.train.checkpoint_every = 1000
  config.train.patience = 5
  return config
