r"""WMT 2014 English to German or French as in the paper: section 5, and tables 2 and 3.

  python -m transformer.data.prepare --name=wmt14_translate/de-en --data_dir=data
  python train.py --config=configs/wmt14.py --workdir=runs/wmt14
  python eval.py --workdir=runs/wmt14 --checkpoint=latest --average=5

That is the base model, English to German. The size and the direction follow a colon,

  python train.py --config=configs/wmt14.py:big,en-fr --workdir=runs/big-fr
  python eval.py --workdir=runs/big-fr --checkpoint=latest --average=20

where a size is base or big, and a direction en-de, de-en, en-fr or fr-en; French lies in
wmt14_translate/fr-en. Adam, the learning rate and its warm-up of 4,000 updates, smoothing,
25,600 + 25,600 tokens a batch, beam 4, alpha 0.6 and source length + 50 are those of
configs/base.py. Checkpoints lie ten minutes of the paper's machine apart, which are 1,500
updates of the base model and 600 of the big one; the last 5 and 20 are kept, and averaged.
Those 20 take some 51 GB of disk.

The paper's BLEU on newstest2014, of tokenised text: 27.3 (base) and 28.4 (big) for en-de,
38.1 and 41.8 for en-fr. This has not been run to its end, so it claims none.
"""

from configs import base
from transformer.errors import UserError

_SIZES = ('base', 'big')
# Of a direction: the TFDS config, and the pieces of the joint vocabulary (section 5.1).
_DIRECTIONS = {'en-de': ('de-en', 37_000), 'de-en': ('de-en', 37_000),
               'en-fr': ('fr-en', 32_000), 'fr-en': ('fr-en', 32_000)}


def get_config(which: str = 'base,en-de'):
  """The settings of a size and a direction, either of which may be left out.

  Raises:
    UserError: there is no such size or direction.
  """
  words = which.split(',')
  size = words.pop(0) if words[0] in _SIZES else 'base'
  direction = words.pop(0) if words and words[0] in _DIRECTIONS else 'en-de'
  if words:
    raise UserError(f'configs/wmt14.py takes a size, {" or ".join(_SIZES)}, then a direction, '
                    f'{", ".join(_DIRECTIONS)}, such as configs/wmt14.py:big,en-fr; got {which!r}')
  languages, pieces = _DIRECTIONS[direction]
  config = base.get_config()  # The paper's base model and schedule.
  config.data.source = 'tfds'
  config.data.name = f'wmt14_translate/{languages}'
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
