"""The built-in English-French phrasebook with a very small model, on two CPU cores.

  python train.py --config=configs/quickstart.py --workdir=runs/quickstart
  python eval.py --workdir=runs/quickstart

Test BLEU 99.48; it differs a little by processor and version of JAX. Training takes 165
core-seconds on an AMD EPYC with AVX-512. The signature is
nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0.
The text comes with the code, from transformer/tools/phrasebook/.
"""

from configs import base


def get_config():
  """Returns the settings."""
  config = base.get_config()
  config.data.source = 'transformer.tools.phrasebook:Phrasebook'
  config.data.source_language = 'en'
  config.data.target_language = 'fr'
  config.data.vocabulary_size = 2000
  config.data.max_length = 32

  config.model.num_layers = 2
  config.model.model_dim = 128
  config.model.ff_dim = 512
  config.model.num_heads = 4
  config.model.attention_bias = 'all'
  config.model.norm = 'pre'

  config.optimizer.schedule = 'cosine'
  config.optimizer.peak_learning_rate = 3e-3
  config.optimizer.warmup_steps = 200

  config.train.steps = 1200
  config.train.tokens_per_batch = 2048
  config.train.log_every = 20
  config.train.eval_every = 200
  config.train.checkpoint_every = 200
  config.train.keep = 2
  return config
