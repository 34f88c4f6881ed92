"""A model that the compilers for other devices compile in seconds."""

FLAGS = [
  '--config=configs/wmt14.py',
  '--config.model.dtype=bfloat16',
  '--config.model.num_layers=1',
  '--config.model.model_dim=128',
  '--config.model.ff_dim=256',
  '--config.model.num_heads=2',
  '--config.data.vocabulary_size=1000',
]
