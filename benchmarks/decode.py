"""Times decoding beside other toolkits; all systems take turns in one run.

  python benchmarks/decode.py                               # base size, random weights
  python benchmarks/decode.py --flax=DIR                    # with a clone of google/flax beside it
  python benchmarks/decode.py --run=DIR --source=FILE       # a trained run, whole processes

With random weights, all systems decode the same sources to the same number of tokens, and those
that can load this project's weights use the same weights. With a run, each system is a command
that starts, loads the weights, translates the file and writes the translation. Each command runs
once before it is timed, so that this project's programs are kept. All systems use the CPU.
Packages: benchmarks/requirements.txt.
"""

import os
import sys
import tempfile
from pathlib import Path

from absl import app, flags, logging

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from side_by_side import System, machine, take_turns
from work import DECODING

from transformer.errors import UserError

_BEAMS = flags.DEFINE_multi_integer('beam_size', [4, 1], 'Beams; 1 is greedy.')
_TURNS = flags.DEFINE_integer('turns', 5, 'Number of turns of each system.', lower_bound=1)
_RUNS = flags.DEFINE_integer('runs', 2, 'Timed runs in a turn, after an untimed one.',
                             lower_bound=1)
_FLAX = flags.DEFINE_string('flax', None, 'A clone of https://github.com/google/flax.')
_RUN = flags.DEFINE_string('run', None, 'The directory of a run of train.py.')
_AVERAGE = flags.DEFINE_integer('average', 1, 'Number of its checkpoints to average.')
_SOURCE = flags.DEFINE_string('source', None, 'A file to translate with it.')

# The rows of this project, with `config.decode.dtype`.
_DTYPES = {'this project': 'trained', 'this project, bfloat16': 'bfloat16'}
_ROOT = Path(__file__).resolve().parents[1]


def random_weights(folder: str):
  """Yields a title and the systems that decode with random weights, for each beam size."""
  from peers.ctranslate import pieces_of_ids
  from this_project import random_params

  from transformer.tools.convert.ctranslate2_format import write_model
  write_model(folder, DECODING.model, random_params(DECODING),
              (pieces_of_ids(DECODING.vocabulary_size),) * 2)
  for beam_size in _BEAMS.value:
    flax = [System('Flax `examples/wmt`', 'peers.flax_wmt', 'make_decoding',
                   (DECODING, _FLAX.value, beam_size))]
    yield f'beam {beam_size}: {DECODING}', [
        *(System(name, 'this_project', 'make_decoding', (DECODING, beam_size, dtype))
          for name, dtype in _DTYPES.items()),
        *(System(f'CTranslate2 {kind}', 'peers.ctranslate', 'make_decoding',
                 (DECODING, folder, beam_size, kind)) for kind in ('float32', 'int8')),
        *(flax if _FLAX.value else [])]


def commands(folder: str) -> list[System]:
  """Returns the systems that are whole processes."""
  from transformer.runs.loading import load_run
  from transformer.tools.convert.ctranslate2_format import write_model
  from transformer.tools.convert.vocabulary_pieces import pieces_of
  run = load_run(_RUN.value, average=_AVERAGE.value)
  decode = run.config.decode
  vocabularies = [f'{folder}/{name}.model' for name in ('source', 'target')]
  for path, side in zip(vocabularies, (run.vocabulary.source, run.vocabulary.target), strict=True):
    side.save(path)
  pieces = pieces_of(run.vocabulary)
  for kind in ('float32', 'int8'):
    os.mkdir(f'{folder}/model-{kind}')
    write_model(f'{folder}/model-{kind}', run.config.model, run.params, pieces, quantization=kind)
  return [
      *(System(name, 'side_by_side', 'make_command', (
          _SOURCE.value, f'{folder}/{dtype}', str(_ROOT / 'eval.py'), f'--workdir={run.workdir}',
          f'--average={_AVERAGE.value}', f'--dtype={dtype}', '--source=-', '--output=-'))
        for name, dtype in _DTYPES.items()),
      *(System(f'CTranslate2 {kind}', 'side_by_side', 'make_command', (
          _SOURCE.value, f'{folder}/{kind}', str(_ROOT / 'benchmarks/peers/ctranslate_command.py'),
          f'{folder}/model-{kind}', *vocabularies, kind, str(decode.beam_size),
          str(decode.alpha))) for kind in ('float32', 'int8'))]


def show(systems: list[System], unit: str):
  """Prints a table of speeds in `unit`, a key of every system's notes."""
  measured, failed = take_turns(systems, _TURNS.value, _RUNS.value)
  if 'this project' in measured:
    ours = measured['this project']
    print(f'| system | seconds, median | fastest … slowest | {unit} a second | '
          'this project is faster by | same output |\n| --- | --- | --- | --- | --- | --- |')
    for name, run in measured.items():
      same = '–'
      if 'words' in run.notes:
        pairs = list(zip(run.notes['words'], ours.notes['words'], strict=True))
        same = f'{sum(a == b for a, b in pairs)} of {len(pairs)}'
      print(f'| {name} | {run.median:.2f} | {min(run.seconds):.2f} … {max(run.seconds):.2f} | '
            f'{run.notes[unit] / run.median:,.0f} | {run.median / ours.median:.2f} × | {same} |')
  for name, reason in failed.items():
    print(f'\n{name} was left out: {reason}')


def main(_):
  """Prints the tables."""
  logging.set_verbosity(logging.WARNING)
  if bool(_RUN.value) != bool(_SOURCE.value):
    raise UserError('--run and --source need each other')
  os.environ['JAX_PLATFORMS'] = 'cpu'
  print(machine('jax', 'ctranslate2'), flush=True)
  with tempfile.TemporaryDirectory() as folder:
    if _RUN.value:
      print(f'\n{os.path.basename(_SOURCE.value)}, whole processes\n', flush=True)
      show(commands(folder), 'sentences')
      return
    for title, systems in random_weights(folder):
      print(f'\n{title}\n', flush=True)
      show(systems, 'tokens')


if __name__ == '__main__':
  try:
    app.run(main)
  except UserError as error:
    sys.exit(f'error: {error}')
