"""Multi30k English to German by the published Tiny recipe, on two CPU cores.

  python train.py --config=configs/multi30k_tiny.py --workdir=runs/tiny --config.data.dir=DIR
  python eval.py --workdir=runs/tiny --checkpoint=latest --average=10

The recipe is the text-only Transformer-Tiny of Wu et al., 2021, "Good for Misconceived
Reasons": a joint BPE vocabulary of 10,000, all embeddings shared, post-norm, Adam with a
peak rate of 5e-3 after 2,000 updates, some 8,192 tokens an update, at most 8,000 updates,
patience of ten epochs on `val`, the last ten epochs averaged, a beam of 5. An epoch is 55
updates. Where the data comes from stands in configs/multi30k.py.

test_2016_flickr: BLEU 40.98 (nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.6.0) after
4,070 updates of 1.1 s each on two cores that do nothing else; published are 41.02. The length
penalty was chosen on `val`, where 0.6, 1.0, 1.4 and 1.8 give 41.17, 41.41, 41.45 and 41.36.
"""

from configs import multi30k


def get_config():
  """The settings."""
  config = multi30k.get_config('forward')
  config.data.vocabulary_size = 10_000

  config.model.num_layers = 4
  config.model.model_dim = 128
  config.model.ff_dim = 256
  config.model.num_heads = 4
  config.model.dropout = 0.3
  config.model.norm = 'post'

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
