"""Multi30k English to German with the published Tiny recipe, on two CPU cores.

  python train.py --config=configs/multi30k_tiny.py --workdir=runs/tiny --config.data.dir=DIR
  python eval.py --workdir=runs/tiny --checkpoint=latest --average=10

The recipe is the text-only Transformer-Tiny of Wu et al., 2021, "Good for Misconceived Reasons":

| setting | value |
| --- | --- |
| vocabulary | joint BPE of 10,000 pieces; all embeddings shared |
| norm_position | post |
| optimizer | Adam, peak learning rate 5e-3 after 2,000 warmup steps |
| batch | about 8,192 tokens; 55 steps per epoch |
| early stopping | 10 epochs without a better BLEU on `val` (the paper: loss); at most 8,000 steps |
| decoding | last ten epochs averaged, beam size 5 |

configs/multi30k.py explains how to get the data.

BLEU on test_2016_flickr: 40.87 ± 0.30, the mean of seeds 0, 1 and 2
(nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.6.0); the paper reports 41.02. A run takes
about 4,000 steps of 1.1 s each on two otherwise idle CPU cores. The length penalty was tuned for
BLEU on `val`, with seed 0:

| length penalty | 0.6 | 1.0 | 1.4 | 1.8 |
| --- | --- | --- | --- | --- |
| BLEU | 41.17 | 41.41 | 41.45 | 41.36 |
"""

from configs import multi30k


def get_config():
  """Returns the config."""
  config = multi30k.get_config('forward')
  config.data.vocabulary_size = 10_000

  config.model.num_layers = 4
  config.model.model_dim = 128
  config.model.ff_dim = 256
  config.model.num_heads = 4
  config.model.dropout = 0.3
  config.model.norm_position = 'post'

  config.optimizer.algorithm = 'adam'
  config.optimizer.weight_decay = 0.0
  config.optimizer.schedule = 'inverse_sqrt'
  config.optimizer.peak_learning_rate = 5e-3
  config.optimizer.warmup_steps = 2000

  config.train.steps = 8000
  config.train.tokens_per_batch = 8192
  config.train.label_smoothing = 0.1
  config.train.ema_decay = 0.0
  config.train.log_every = 55
  config.train.eval_every = 55
  config.train.checkpoint_every = 55
  config.train.keep = 10
  config.train.patience = 10

  config.decode.beam_size = 5
  config.decode.alpha = 1.4
  return config
