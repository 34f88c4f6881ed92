"""Downloads a TFDS translation set, and writes it in a format with random access.

  python -m transformer.tools.prepare --name=wmt14_translate/de-en --data_dir=DIR
"""

from absl import flags

from transformer.data import tfds_sets
from transformer.errors import UserError
from transformer.system import command_line

_NAME = flags.DEFINE_string('name', None, 'TFDS name of the set, such as wmt14_translate/de-en.')
_DATA_DIR = flags.DEFINE_string('data_dir', '', 'The folder to write to; default: '
                                '~/tensorflow_datasets, as in TFDS.')


def main(_):
  """Prepares the set of the flags, and prints its folder and the sizes of its splits."""
  if not _NAME.value:
    raise UserError('--name=SET is needed, the TFDS name of a set such as wmt14_translate/de-en')
  builder = tfds_sets.prepare(_NAME.value, _DATA_DIR.value)
  splits = ', '.join(f'{key} {value.num_examples:,}' for key, value in builder.info.splits.items())
  print(f'{_NAME.value} lies in {builder.data_path}: {splits}')


def start():
  """Runs `main` with the flags of the command line; `attention-prepare` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
