r"""The rows of the paper's table 3: ablations of the base model, English to German.

  python -m transformer.tools.download --name=wmt14_translate/de-en --data_dir=data
  python train.py --config=configs/table3.py:A1 --workdir=runs/A1
  python eval.py --workdir=runs/A1 --split=valid --checkpoint=latest

The rows are base, A1 to A4, B1, B2, C1 to C7, D1 to D4, E and big; base and big are the models of
configs/wmt14.py. All rows are scored on newstest2013, without checkpoint averaging (section 6.2).
launch/table3.py trains the rows on any corpus and compares the results with the paper's. No row has
been trained on WMT 2014 here.
"""

from configs import wmt14
from transformer.errors import UserError

# Settings that differ from the base model: 6 layers, model_dim 512, ff_dim 2048, 8 heads with
# key_dim and value_dim 64, dropout 0.1, label smoothing 0.1, sinusoidal positions.
_ROWS = {
  'base': {},
  'A1': {'model.num_heads': 1, 'model.key_dim': 512, 'model.value_dim': 512},
  'A2': {'model.num_heads': 4, 'model.key_dim': 128, 'model.value_dim': 128},
  'A3': {'model.num_heads': 16, 'model.key_dim': 32, 'model.value_dim': 32},
  'A4': {'model.num_heads': 32, 'model.key_dim': 16, 'model.value_dim': 16},
  'B1': {'model.key_dim': 16},
  'B2': {'model.key_dim': 32},
  'C1': {'model.num_layers': 2},
  'C2': {'model.num_layers': 4},
  'C3': {'model.num_layers': 8},
  'C4': {'model.model_dim': 256, 'model.key_dim': 32, 'model.value_dim': 32},
  'C5': {'model.model_dim': 1024, 'model.key_dim': 128, 'model.value_dim': 128},
  'C6': {'model.ff_dim': 1024},
  'C7': {'model.ff_dim': 4096},
  'D1': {'model.dropout': 0.0},
  'D2': {'model.dropout': 0.2},
  'D3': {'train.label_smoothing': 0.0},
  'D4': {'train.label_smoothing': 0.2},
  'E': {'model.positions': 'learned'},
  'big': {},  # configs/wmt14.py sets everything.
}


def get_config(row: str = 'base'):
  """Returns the config of a row.

  Raises:
    UserError: there is no such row.
  """
  if row not in _ROWS:
    raise UserError(
      f'configs/table3.py takes a row of table 3, one of {", ".join(_ROWS)}; got {row!r}'
    )
  config = wmt14.get_config('big' if row == 'big' else 'base')
  config.update_from_flattened_dict(_ROWS[row])
  return config
