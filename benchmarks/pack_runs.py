"""Packs runs for `accelerator.py --train`, and unpacks the weights that it returns.

  python benchmarks/pack_runs.py --pack=FOLDER --config=configs/tatoeba.py:gpu --checkpoint=latest \
      --average=5
  python benchmarks/pack_runs.py --pack=FOLDER --config=configs/multi30k_tiny.py --seeds=3
  python benchmarks/pack_runs.py --unpack=OUT --runs=FOLDER

Flags change settings as in train.py, such as --config.data.dir=DIR. Runs are trained in the order
in which they were packed. FOLDER gets their settings and their text, so the other machine does not
need ml-collections. It also gets the pure-Python packages that training needs and accelerator.py
does not, except sacrebleu. At most 60 MiB of weights are returned, in files of 15 MiB, rounded to
bfloat16. eval.py scores the unpacked runs.
"""

import sys
from pathlib import Path

from absl import flags, logging
from ml_collections import config_flags

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from accelerator_parts.packed_runs import pack, unpack

from transformer.cli import shared_flags
from transformer.config import Config
from transformer.errors import UserError
from transformer.system import command_line

_PACK = flags.DEFINE_string('pack', None, 'The folder to add runs to.')
_CONFIG = shared_flags.define_config()
_SEEDS = flags.DEFINE_integer('seeds', 1, 'Number of runs, with consecutive seeds.')
_CHECKPOINT = flags.DEFINE_string(
  'checkpoint', 'best', 'The checkpoint to bring back, as for eval.py.'
)
_AVERAGE = flags.DEFINE_integer(
  'average', 1, 'Number of checkpoints to average, as for eval.py.'
)
_UNPACK = flags.DEFINE_string('unpack', None, 'The folder that --train has written.')
_RUNS = flags.DEFINE_string(
  'runs', None, 'The folder for the directories of unpacked runs.'
)


def main(_):
  """Packs or unpacks runs, as the flags say."""
  logging.set_verbosity(logging.WARNING)  # Orbax logs much.
  if _PACK.value and _CONFIG.value:
    path, _, argument = config_flags.get_config_filename(
      flags.FLAGS['config']
    ).partition(':')
    pack(
      Path(_PACK.value),
      Config.from_dict(_CONFIG.value.to_dict()),
      '-'.join(filter(None, (Path(path).stem, argument))),
      _SEEDS.value,
      _CHECKPOINT.value,
      _AVERAGE.value,
    )
  elif _UNPACK.value and _RUNS.value:
    for workdir in unpack(Path(_UNPACK.value), Path(_RUNS.value)):
      print(workdir)
  else:
    raise UserError(
      'flags are missing; pass --pack and --config, or --unpack and --runs'
    )


if __name__ == '__main__':
  command_line.run(main, use_compilation_cache=False)
