"""Times decoding against other toolkits; all systems take turns in one run.

  python benchmarks/decode.py                               # base size, random weights
  python benchmarks/decode.py --flax=DIR                    # also a clone of google/flax
  python benchmarks/decode.py --run=DIR --source=FILE       # a trained run, whole processes
  python benchmarks/decode.py --run=DIR --source=FILE --baseline_python=PYTHON   # other toolkits

With random weights, all systems decode the same sources to the same number of tokens, and systems
that can load this project's weights use the same weights. With a run, each system is a command
that starts, loads the weights, translates the file and writes the translation. Each command runs
once before it is timed, so that this project's programs are cached. All systems use the CPU.
Packages: benchmarks/requirements.txt. The other toolkits use a different Python, --baseline_python,
as in bleu_over_time.py. They get the run's weights, beam size and length penalty.
"""

import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from absl import app, flags, logging

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from side_by_side import System, machine, time_in_turns
from workload import DECODING

from transformer.errors import UserError

_BEAMS = flags.DEFINE_multi_integer('beam_size', [4, 1], 'Beams; 1 is greedy.')
_TURNS = flags.DEFINE_integer(
  'turns', 5, 'Number of turns of each system.', lower_bound=1
)
_RUNS = flags.DEFINE_integer(
  'runs', 2, 'Timed runs in a turn, after an untimed one.', lower_bound=1
)
_FLAX = flags.DEFINE_string('flax', None, 'A clone of https://github.com/google/flax.')
_RUN = flags.DEFINE_string('run', None, 'The directory of a run of train.py.')
_AVERAGE = flags.DEFINE_integer(
  'average', 1, "Number of the run's checkpoints to average."
)
_SOURCE = flags.DEFINE_string('source', None, 'A file to translate with the run.')
_BASELINE_PYTHON = flags.DEFINE_string(
  'baseline_python', None, 'The Python that has the other toolkits.'
)

# The rows of this project, with `config.decode.dtype`.
_DTYPES = {'this project': 'trained', 'this project, bfloat16': 'bfloat16'}
_ROOT = Path(__file__).resolve().parents[1]
_TOOLKITS = ('transformers `generate`', 'JoeyNMT `translate`')


def random_weights(folder: str):
  """Yields a title and the systems that decode with random weights, for each beam size."""
  from baselines.ctranslate import pieces_of_ids
  from this_project import random_params

  from transformer.tools.convert.ctranslate2_format import write_model

  write_model(
    folder,
    DECODING.model,
    random_params(DECODING),
    (pieces_of_ids(DECODING.vocabulary_size),) * 2,
  )
  for beam_size in _BEAMS.value:
    flax = [
      System(
        'Flax `examples/wmt`',
        'baselines.flax_wmt',
        'make_decoding',
        (DECODING, _FLAX.value, beam_size),
      )
    ]
    yield (
      f'beam {beam_size}: {DECODING}',
      [
        *(
          System(name, 'this_project', 'make_decoding', (DECODING, beam_size, dtype))
          for name, dtype in _DTYPES.items()
        ),
        *(
          System(
            f'CTranslate2 {kind}',
            'baselines.ctranslate',
            'make_decoding',
            (DECODING, folder, beam_size, kind),
          )
          for kind in ('float32', 'bfloat16', 'int8')
        ),
        *(flax if _FLAX.value else []),
      ],
    )


def commands(folder: str) -> tuple[list[System], dict[str, str]]:
  """Returns the systems that are whole processes, and the reason for each one left out."""
  from transformer.runs.loading import load_run
  from transformer.tools.convert.ctranslate2_format import write_model
  from transformer.tools.convert.vocabulary_pieces import pieces_of

  run = load_run(_RUN.value, average=_AVERAGE.value)
  decode = run.config.decode
  vocabularies = [f'{folder}/{name}.model' for name in ('source', 'target')]
  for path, side in zip(
    vocabularies, (run.vocabulary.source, run.vocabulary.target), strict=True
  ):
    side.save(path)
  pieces = pieces_of(run.vocabulary)
  for kind in ('float32', 'int8'):
    os.mkdir(f'{folder}/model-{kind}')
    write_model(
      f'{folder}/model-{kind}', run.config.model, run.params, pieces, quantization=kind
    )
  toolkits, left_out = _toolkits(Path(folder), run, vocabularies)
  return [
    *(
      System(
        name,
        'side_by_side',
        'make_command',
        (
          _SOURCE.value,
          f'{folder}/{dtype}',
          sys.executable,
          str(_ROOT / 'eval.py'),
          f'--workdir={run.workdir}',
          f'--average={_AVERAGE.value}',
          f'--dtype={dtype}',
          '--source=-',
          '--output=-',
        ),
      )
      for name, dtype in _DTYPES.items()
    ),
    *(
      System(
        f'CTranslate2 {kind}',
        'side_by_side',
        'make_command',
        (
          _SOURCE.value,
          f'{folder}/{kind}',
          sys.executable,
          str(_ROOT / 'benchmarks/baselines/ctranslate_command.py'),
          f'{folder}/model-{kind}',
          *vocabularies,
          kind,
          str(decode.beam_size),
          str(decode.alpha),
        ),
      )
      for kind in ('float32', 'int8')
    ),
    *toolkits,
  ], left_out


def _toolkits(folder, run, vocabularies):
  """Returns the baselines as whole processes, and the reason for each one left out."""
  from baselines import joeynmt_run

  from transformer.tools.convert import huggingface_format

  if not _BASELINE_PYTHON.value:
    return [], dict.fromkeys(
      _TOOLKITS, 'name a Python that has it by --baseline_python'
    )
  python = shutil.which(_BASELINE_PYTHON.value) or _BASELINE_PYTHON.value
  systems = []
  reason = ''
  exported, joey = folder / 'huggingface', folder / 'joeynmt'
  exported.mkdir()
  joey.mkdir()
  try:
    huggingface_format.write_model(exported, run.config, run.params, run.vocabulary)
    systems.append(
      System(
        _TOOLKITS[0],
        'side_by_side',
        'make_command',
        (
          _SOURCE.value,
          f'{exported}.txt',
          python,
          str(_ROOT / 'benchmarks/baselines/huggingface_command.py'),
          'translate',
          str(exported),
          *vocabularies,
          str(run.config.decode.max_extra_length),
        ),
      )
    )
    joeynmt_run.write_model(joey, run, vocabularies)
    systems.append(
      System(
        _TOOLKITS[1],
        'baselines.joeynmt_run',
        'make_command',
        (_SOURCE.value, f'{joey}.txt', python, str(joey)),
      )
    )
  except UserError as error:
    reason = str(error)
  return systems, dict.fromkeys(_TOOLKITS[len(systems) :], reason)


def show(
  systems: list[System], unit: str, left_out: Mapping[str, str] = MappingProxyType({})
):
  """Prints a table of speeds in `unit`, a key of every system's notes, and the missing systems."""
  measured, failed = time_in_turns(systems, _TURNS.value, _RUNS.value)
  if 'this project' in measured:
    ours = measured['this project']
    print(
      f'| system | seconds, median | fastest … slowest | core-seconds, median | {unit} a '
      'second | speedup (baseline / ours) | same output |\n'
      '| --- | --- | --- | --- | --- | --- | --- |'
    )
    for name, run in measured.items():
      same = '–'
      if 'words' in run.notes:
        pairs = list(zip(run.notes['words'], ours.notes['words'], strict=True))
        same = f'{sum(a == b for a, b in pairs)} of {len(pairs)}'
      print(
        f'| {name} | {run.median:.2f} | {min(run.seconds):.2f} … {max(run.seconds):.2f} | '
        f'{statistics.median(run.cpu_seconds):.2f} | {run.notes[unit] / run.median:,.0f} | '
        f'{run.median / ours.median:.2f} × | {same} |'
      )
  for name, reason in {**left_out, **failed}.items():
    print(f'\n{name} was left out: {reason}')


def main(_):
  """Prints the tables."""
  logging.set_verbosity(logging.WARNING)
  if bool(_RUN.value) != bool(_SOURCE.value):
    raise UserError('--run and --source require each other; pass both or neither')
  os.environ['JAX_PLATFORMS'] = 'cpu'
  print(machine('jax', 'ctranslate2'), flush=True)
  with tempfile.TemporaryDirectory() as folder:
    if _RUN.value:
      print(f'\n{os.path.basename(_SOURCE.value)}, whole processes\n', flush=True)
      systems, left_out = commands(folder)
      show(systems, 'sentences', left_out)
      return
    for title, systems in random_weights(folder):
      print(f'\n{title}\n', flush=True)
      show(systems, 'tokens')


if __name__ == '__main__':
  try:
    app.run(main)
  except UserError as error:
    sys.exit(f'error: {error}')
