r"""WMT 2014 English to German or French, as in section 5 and tables 2 and 3 of the paper.

  python -m transformer.tools.download --name=wmt14_translate/de-en --data_dir=data
  python train.py --config=configs/wmt14.py --workdir=runs/wmt14
  python eval.py --workdir=runs/wmt14 --checkpoint=latest --average=5

These commands train the base model, English to German. On 8 or 16 GPUs, which do not divide a batch
of 100 rows, add --config.train.tokens_per_batch=24576 for 96 rows. For speed on NVIDIA GPUs, add
--config.model.dtype=bfloat16 --config.model.attention=cudnn. The size and the direction come after
a colon:

  python train.py --config=configs/wmt14.py:big,en-fr --workdir=runs/big-fr
  python eval.py --workdir=runs/big-fr --checkpoint=latest --average=20

Sizes are base and big. Directions are en-de, de-en, en-fr and fr-en; the French data is in
wmt14_translate/fr-en. configs/base.py sets Adam, the learning rate with 4,000 warmup steps, label
smoothing, 25,600 + 25,600 tokens per batch, beam size 4, alpha 0.6 and a maximum output length of
source length + 50. The checkpoint interval matches 10 minutes on the paper's machine: 1,500 steps
of the base model, 600 of the big one. The last 5 (base) or 20 (big) checkpoints are kept and
averaged; 20 big ones take about 51 GB.

The paper's tokenized BLEU on newstest2014:

| size | en-de | en-fr |
| --- | --- | --- |
| base | 27.3 | 38.1 |
| big | 28.4 | 41.8 |

This config has not been trained to the end, so its BLEU is unknown.
"""

from configs import base
from transformer.errors import UserError

_SIZES = ('base', 'big')
# For each direction: the TFDS config and the joint vocabulary size (section 5.1).
_DIRECTIONS = {
  'en-de': ('de-en', 37_000),
  'de-en': ('de-en', 37_000),
  'en-fr': ('fr-en', 32_000),
  'fr-en': ('fr-en', 32_000),
}


def get_config(which: str = 'base,en-de'):
  """Returns the config for a size and a direction, both optional.

  Raises:
    UserError: there is no such size or direction.
  """
  words = which.split(',')
  size = words.pop(0) if words[0] in _SIZES else 'base'
  direction = words.pop(0) if words and words[0] in _DIRECTIONS else 'en-de'
  if words:
    raise UserError(
      f'configs/wmt14.py takes a size, {" or ".join(_SIZES)}, then a direction, '
      f'{", ".join(_DIRECTIONS)}, such as configs/wmt14.py:big,en-fr; got {which!r}'
    )
  languages, pieces = _DIRECTIONS[direction]
  config = base.get_config()  # The paper's base model and schedule.
  config.data.source = 'tfds'
  config.data.tfds_name = f'wmt14_translate/{languages}'
  config.data.dir = 'data'
  config.data.train = ('train',)
  config.data.valid = 'validation'  # newstest2013
  config.data.test = 'test'  # newstest2014
  config.data.source_language, config.data.target_language = direction.split('-')
  config.data.vocabulary_size = pieces

  config.train.steps = 100_000
  config.train.eval_every = 3000
  config.train.checkpoint_every = 1500
  config.train.keep = 5
  if size == 'big':
    config.model.model_dim = 1024
    config.model.ff_dim = 4096
    config.model.num_heads = 16
    config.model.dropout = 0.1 if languages == 'fr-en' else 0.3  # section 6.1
    config.train.steps = 300_000
    config.train.checkpoint_every = 600
    config.train.keep = 20
  return config
