"""Multi30k English to German with a model of 2.6 million parameters, on two CPU cores.

Two teachers, one per direction, translate the training set. A student is trained on the original
pairs and both sets of translations.

  python train.py --config=configs/multi30k.py:forward --workdir=runs/forward --config.data.dir=DIR
  python train.py --config=configs/multi30k.py:back --workdir=runs/back --config.data.dir=DIR
  python eval.py --workdir=runs/forward --source=DIR/train.en --output=DIR/train_forward.de
  python eval.py --workdir=runs/back --source=DIR/train.de --output=DIR/train_back.en
  cp DIR/train.en DIR/train_forward.en
  cp DIR/train.de DIR/train_back.de
  python train.py --config=configs/multi30k.py --workdir=runs/student --config.data.dir=DIR
  python eval.py --workdir=runs/student --checkpoint=latest

This is data diversification (Nguyen et al., 2020, "Data Diversification: A Simple Strategy For
Neural Machine Translation") with one teacher per direction and one round. All three models are
trained with Muon and an exponential moving average of the weights.

BLEU on test_2016_flickr: 41.04 (nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.6.0).

| model | training on two cores | translation of the training text |
| --- | --- | --- |
| forward | 50 min | 4 min |
| back | 33 min | 4 min |
| student | 112 min | |

The checkpoint and the length penalty were tuned for BLEU on `val`:

| length penalty | 1.0 | 1.5 | 2.0 | 2.5 | 3.0 |
| --- | --- | --- | --- | --- | --- |
| student, best checkpoint | 42.43 | 42.44 | 42.57 | 42.82 | |
| student, latest checkpoint | | | 42.86 | 42.89 | 42.87 |
| forward, best checkpoint | | 40.53 | | | |

The data is the authors' lowercased, tokenized version, as in published results. It is in
data/task1/tok of https://github.com/multi30k/dataset. Copy train.lc.norm.tok.en to DIR/train.en.
Copy val and test_2016_flickr in the same way, for both `en` and `de`.
"""

from configs import base
from transformer.errors import UserError


def get_config(model: str = 'student'):
  """Returns the config of one of the three models.

  Raises:
    UserError: the model is not `student`, `forward` or `back`.
  """
  if model not in ('student', 'forward', 'back'):
    raise UserError(
      'configs/multi30k.py takes student, forward or back, such as '
      f'configs/multi30k.py:forward; got {model!r}'
    )
  config = base.get_config()
  config.data.source = 'text'
  config.data.dir = 'data/multi30k/tok'
  config.data.train = ('train',)
  config.data.valid = 'val'
  config.data.test = 'test_2016_flickr'
  config.data.source_language = 'en'
  config.data.target_language = 'de'
  config.data.vocabulary_size = 6000
  config.data.max_length = 64

  config.model.num_layers = 4
  config.model.model_dim = 128
  config.model.ff_dim = 256
  config.model.num_heads = 4
  config.model.attention_bias = 'all'
  config.model.dropout = 0.3
  config.model.norm_position = 'pre'

  config.optimizer.algorithm = 'muon'
  config.optimizer.weight_decay = 0.1
  config.optimizer.schedule = 'cosine'
  config.optimizer.peak_learning_rate = 7e-3
  config.optimizer.warmup_steps = 200

  config.train.steps = 4000
  config.train.tokens_per_batch = 4096
  config.train.ema_decay = 0.997
  config.train.log_every = 50
  config.train.eval_every = 500
  config.train.checkpoint_every = 250
  config.train.keep = 3

  config.decode.bleu_tokenize = 'none'
  config.decode.beam_size = 5
  config.decode.alpha = 1.5
  if model == 'back':
    config.data.source_language = 'de'
    config.data.target_language = 'en'
    config.train.steps = 2400
    config.train.eval_every = 600
    config.decode.alpha = 1.0
  if model == 'student':
    config.data.train = ('train', 'train_forward', 'train_back')
    config.model.ff_dim = 512
    config.model.dropout = 0.2
    config.train.steps = 7500
    config.train.ema_decay = 0.998
    config.decode.alpha = 2.5
  return config
