"""The paper's base size with more recent layers.

  python -m transformer.tools.download --name=wmt14_translate/de-en --data_dir=data
  python train.py --config=configs/modern.py --workdir=runs/modern --config.data.dir=data \
      --config.data.tfds_name=wmt14_translate/de-en \
      --config.data.source_language=en --config.data.target_language=de
  python eval.py --workdir=runs/modern

The model has pre-norm with RMS norm, rotary positions, query-key norm and SwiGLU. SwiGLU has three
matrices instead of two, so ff_dim is two thirds of the base model's. With a vocabulary of 37,000,
this model has 62.9 million parameters, and the base model has 63.0 million. The learning rate
schedule is unchanged from configs/base.py. This config has not been trained to the end: training
time and BLEU are unknown.
"""

from configs import base


def get_config():
  """Returns the config."""
  config = base.get_config()
  config.model.norm_position = 'pre'
  config.model.rms_norm = True
  config.model.query_key_norm = True
  config.model.positions = 'rotary'
  config.model.activation = 'swiglu'
  config.model.ff_dim = 1360
  return config
