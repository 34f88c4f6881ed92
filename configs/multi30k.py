"""Multi30k English to German with a Tiny model of 2.1 million parameters, on two CPU cores.

  python train.py --config=configs/multi30k.py --workdir=runs/multi30k --config.data.dir=DIR
  python eval.py --workdir=runs/multi30k --average=5

test_2016_flickr: BLEU 40.0 (nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.6.0),
an hour. The text is lower-cased and tokenised by its authors, which is what published
tables score: https://github.com/multi30k/dataset, data/task1/tok, whose files
`train.lc.norm.tok.en` and so on are to be `train.en`, `val.en`, `test_2016_flickr.en`
and the same in `de`, in DIR. The length penalty and the average were chosen on `val`.
"""

from configs import base


def get_config():
  """The settings."""
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
  config.model.dropout = 0.25
  config.model.norm = 'pre'

  config.optimizer.schedule = 'cosine'
  config.optimizer.peak_learning_rate = 3e-3
  config.optimizer.warmup_steps = 1000

  config.train.steps = 4500
  config.train.tokens_per_batch = 4096
  config.train.log_every = 50
  config.train.eval_every = 500
  config.train.checkpoint_every = 250
  config.train.keep = 8

  config.decode.bleu_tokenize = 'none'
  config.decode.beam_size = 5
  config.decode.alpha = 1.5
  return config
