"""Downloads a TFDS translation set and writes it for random access.

  python -m transformer.data.prepare --name=wmt14_translate/de-en --data_dir=DIR
"""

import sys

from absl import app, flags

from transformer.data import tfds_sets
from transformer.errors import UserError

_NAME = flags.DEFINE_string('name', None, 'TFDS name of the set, such as wmt14_translate/de-en.')
_DATA_DIR = flags.DEFINE_string('data_dir', '', 'Where it is written; empty means the default '
                                'of TFDS, ~/tensorflow_datasets.')


def main(argv: list[str]):
  """Prepares the set that the flags name, and says where it lies."""
  try:
    if len(argv) > 1:
      raise UserError(f'unexpected argument {argv[1]!r}; flags begin with --')
    if not _NAME.value:
      raise UserError('--name=SET is needed, the TFDS name of a set such as wmt14_translate/de-en')
    builder = tfds_sets.prepare(_NAME.value, _DATA_DIR.value)
  except UserError as error:
    sys.exit(f'error: {error}')
  splits = ', '.join(f'{key} {value.num_examples:,}' for key, value in builder.info.splits.items())
  print(f'{_NAME.value} lies in {builder.data_path}: {splits}')


if __name__ == '__main__':
  app.run(main)
