"""A model of the paper's base size with layers of later work.

  python -m transformer.tools.prepare --name=wmt14_translate/de-en --data_dir=data
  python train.py --config=configs/modern.py --workdir=runs/modern --config.data.dir=data \
      --config.data.name=wmt14_translate/de-en \
      --config.data.source_language=en --config.data.target_language=de
  python eval.py --workdir=runs/modern

Pre-norm with RMS norm, rotary positions, query-key norm and SwiGLU. SwiGLU has three matrices
instead of two, so the inner width is two thirds. With a vocabulary of 37,000, the model has 62.9
million parameters and the base model 63.0. The schedule is that of configs/base.py. It has not been
run to its end, so there is no time and no BLEU to expect.
"""

from configs import base


def get_config():
  """Returns the settings."""
  config = base.get_config()
  config.model.norm = 'pre'
  config.model.rms_norm = True
  config.model.query_key_norm = True
  config.model.positions = 'rotary'
  config.model.activation = 'swiglu'
  config.model.ff_dim = 1360
  return config
