r"""A custom dataset: line-aligned files train, valid and test in one folder.

  python train.py --config=configs/text.py:small,en-de:mytext --workdir=runs/mine
  python train.py --config=configs/text.py:en-de:mytext --workdir=runs/mine
  python eval.py --workdir=runs/mine

`small` is for a first run on two CPU cores, with 10,000 to 200,000 pairs. It counts the training
pairs in the folder after the second colon, and sets the vocabulary size and dropout accordingly.
docs/data.md has training times and BLEU. With `small:mytext`, source and target are the two
languages of train.* in alphabetical order. The folder must be on this machine; otherwise, set
--config.data.dir, --config.data.source_language and --config.data.target_language instead.

| pairs | vocabulary | dropout |
| --- | --- | --- |
| up to 15,000 | 2,000 | 0.3 |
| up to 60,000 | 3,000 | 0.2 |
| more | 4,000 | 0.1 |

The second command trains a model of 9 million parameters on a GPU, with about ten thousand to a
million pairs. Two CPU cores train 1,600 target tokens per second and would need 27 hours; with
model_dim 128, ff_dim 512 and batches of 4,096 tokens, they train 3,800 per second (20a1d23). On an
NVIDIA GPU, add --config.model.dtype=bfloat16 --config.model.attention=cudnn.

BLEU depends on the dataset. All other keys can be set by flags as well.
"""

import itertools
from pathlib import Path

from configs import base
from transformer.data.config import DataConfig
from transformer.data.text.sources import open_corpus
from transformer.errors import UserError

# For `small`: maximum number of training pairs, vocabulary size, dropout rate.
_TIERS = (
  (15_000, 2000, 0.3),
  (60_000, 3000, 0.2),
  (float('inf'), 4000, 0.1),
)
# A sentence of 160 bytes has about 64 tokens. With many longer sentences, rows have 128 tokens.
_SHORT_BYTES = 160
_MANY_LONG = 0.02
_READ = 20_000  # Pairs per chunk.


def get_config(which: str = ''):
  """Returns the config of a model for a GPU, or of a `small` model for two CPU cores.

  Args:
    which: empty, `SOURCE-TARGET:FOLDER`, `small,SOURCE-TARGET:FOLDER` or `small:FOLDER`. With
      `small`, sizes depend on the number of training pairs in FOLDER. Without SOURCE-TARGET, source
      and target are the two languages of the files in alphabetical order.

  Raises:
    UserError: `which` has another form, or FOLDER lacks training files or pairs.
  """
  choice, _, folder = which.partition(':')
  if which and not (choice and folder):
    raise UserError(
      'configs/text.py takes languages and a folder of text, such as '
      'configs/text.py:en-de:mytext, or for a small model '
      f'configs/text.py:small,en-de:mytext; got {which!r}'
    )
  small = 'small,' if choice.partition(',')[0] == 'small' else ''
  direction = choice[len(small) :]
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
  config.model.norm_position = 'pre'

  config.optimizer.schedule = 'inverse_sqrt'
  config.optimizer.peak_learning_rate = 2e-3
  config.optimizer.warmup_steps = 2000

  config.train.steps = 20_000
  config.train.tokens_per_batch = 8192
  config.train.log_every = 100
  config.train.eval_every = 1000
  config.train.checkpoint_every = 1000
  config.train.patience = 5
  if which:
    source, target = _languages(folder, direction, small)
    config.data.dir = folder
    config.data.source_language = source
    config.data.target_language = target
  if small:
    _shrink(config)
  return config


def _shrink(config):
  """Sets sizes for two CPU cores and the number of training pairs."""
  corpus = open_corpus(DataConfig(**config.data.to_dict()), 'train')
  tiers = (tier for tier in _TIERS if len(corpus) <= tier[0])
  _, config.data.vocabulary_size, config.model.dropout = next(tiers)
  long = 0
  for first in range(0, len(corpus), _READ):
    sides = itertools.chain.from_iterable(corpus[first : first + _READ])
    long += sum(len(side.encode()) > _SHORT_BYTES for side in sides)
  config.data.max_length = 128 if long > _MANY_LONG * len(corpus) else 64

  config.model.num_layers = 3
  config.model.model_dim = 128
  config.model.ff_dim = 512
  config.model.positions = 'rotary'

  config.optimizer.algorithm = 'muon'
  config.optimizer.weight_decay = 0.1
  config.optimizer.schedule = 'cosine'
  config.optimizer.peak_learning_rate = 7e-3
  config.optimizer.warmup_steps = 150

  config.train.steps = 1800
  config.train.tokens_per_batch = 2048
  config.train.ema_decay = 0.99
  config.train.log_every = 50
  config.train.eval_every = 300
  config.train.checkpoint_every = 300
  config.train.keep = 1
  config.train.patience = 3


def _languages(folder: str, direction: str, small: str) -> tuple[str, str]:
  """Returns the source and target language of the training files in `folder`.

  `small`: what precedes a direction in the argument of the config, for the error message.
  """
  path = Path(folder).expanduser()
  if not path.is_dir():
    raise UserError(
      f'there is no folder {folder}; put train, valid and test of both languages into one, such '
      'as train.en'
    )
  names = [file.name.removesuffix('.gz') for file in path.glob('train.*')]
  languages = sorted({name.removeprefix('train.') for name in names})
  directions = {
    f'{source}-{target}': (source, target)
    for source, target in itertools.permutations(languages, 2)
  }
  found = ', '.join(languages) or 'none'
  if not directions:
    raise UserError(
      f'{folder} must hold training files of two languages, such as train.en and train.de; '
      f'found: {found}'
    )
  if not direction and len(languages) == 2:
    direction = f'{languages[0]}-{languages[1]}'
  if direction not in directions:
    raise UserError(
      f'{folder} has training files of {found}; choose two of them, such as '
      f'configs/text.py:{small}{next(iter(directions))}:{folder}'
    )
  return directions[direction]
