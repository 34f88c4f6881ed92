"""Sizes of small models: distinct primes."""

SIZES = {
  'num_layers': 2,
  'model_dim': 13,
  'ff_dim': 17,
  'num_heads': 3,
  'key_dim': 7,
  'value_dim': 11,
  'max_positions': 31,
  'dropout': 0.3,
}
