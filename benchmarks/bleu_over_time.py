"""Trains this project and other toolkits on the same text for the same time: BLEU against minutes.

  python benchmarks/bleu_over_time.py --data=DIR --out=OUT   # train, an hour each
  python benchmarks/bleu_over_time.py --data=DIR --out=OUT --score   # translate, table and plot
  python benchmarks/bleu_over_time.py --data=DIR --out=OUT --systems=JoeyNMT # only one

DIR has train, valid and test with the languages as endings, as configs/tatoeba.py describes. All
systems use the same SentencePiece model. This project's recipe was tuned on this data. JoeyNMT uses
the recipe that its page recommends for small data, and Hugging Face's trainer uses this project's
model shape. A system's time counts from the start of its command until a checkpoint is written, on
all cores of the machine. A finished system is skipped. This project's learning rate schedule ends
at --steps: first train for a minute, then set it to the number of training steps that fill the
time at that speed.

With --score, the last checkpoint before each multiple of --every minutes translates the beginning
of valid, and the last checkpoint translates all of test.

The other toolkits may use another Python, --baseline_python, with

  pip install torch 'transformers>=5.2' accelerate joeynmt importlib-metadata 'sentencepiece<0.2.1'
"""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from absl import flags, logging

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from baselines import joeynmt
from side_by_side import machine

from launch import child_process
from transformer import files
from transformer.data.text.text_files import read_lines
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.evaluation.metrics import corpus_score
from transformer.system import command_line

_DATA = flags.DEFINE_string('data', 'data/tatoeba-en-de', 'The folder of the text.')
_OUT = flags.DEFINE_string(
  'out', None, 'The folder for runs, scores and the plot.', required=True
)
_LANGUAGES = flags.DEFINE_list('languages', ['en', 'de'], 'Source and target.')
_MINUTES = flags.DEFINE_float('minutes', 60.0, 'Training time per system, in minutes.')
_EVERY = flags.DEFINE_float('every', 5.0, 'Minutes between scores of valid.')
_SYSTEMS = flags.DEFINE_list('systems', None, 'Names of the systems (default: all).')
_BASELINE_PYTHON = flags.DEFINE_string(
  'baseline_python', sys.executable, 'The Python that has the other toolkits.'
)
_SCORE = flags.DEFINE_bool(
  'score', False, 'Score the trained systems, instead of training.'
)
_LINES = flags.DEFINE_integer('lines', 500, 'Lines of valid that are translated.')
_STEPS = flags.DEFINE_integer(
  'steps', 3000, "Training steps of this project's schedule."
)
_CHECKPOINT_EVERY = flags.DEFINE_integer(
  'checkpoint_every', 100, 'Training steps between checkpoints.'
)

_ROOT = Path(__file__).resolve().parents[1]
_VOCABULARY_SIZE = 6000
# Lines for the validation that JoeyNMT requires before it writes a checkpoint.
_FEW = 10


class TrainedSystem(NamedTuple):
  """A system that trains.

  Attributes:
    folder: its output folder, which no other system uses.
    train: the command that trains and writes checkpoints.
    checkpoints: a glob pattern of their paths below the folder.
    translate: a function checkpoint -> command that reads standard input and writes standard
      output.
  """

  folder: Path
  train: list[str]
  checkpoints: str
  translate: Callable[[Path], list[str]]


def systems(out: Path) -> dict[str, TrainedSystem]:
  """Returns the systems by name."""
  vocabulary, text, (source, target) = (
    out / 'pieces.model',
    out / 'text',
    _LANGUAGES.value,
  )
  baseline_python = shutil.which(_BASELINE_PYTHON.value) or _BASELINE_PYTHON.value
  command = str(_ROOT / 'benchmarks/baselines/huggingface_command.py')
  ours, joey, marian = (out / name for name in ('ours', 'joeynmt', 'huggingface'))
  return {
    'this project': TrainedSystem(
      ours,
      [
        sys.executable,
        str(_ROOT / 'train.py'),
        '--config=configs/tatoeba.py:cpu',
        f'--workdir={ours}',
        f'--config.data.dir={text}',
        f'--config.data.source_language={source}',
        f'--config.data.target_language={target}',
        f'--config.data.vocabulary={vocabulary}',
        '--config.train.keep=1000',
        f'--config.train.steps={_STEPS.value}',
        f'--config.train.checkpoint_every={_CHECKPOINT_EVERY.value}',
      ],
      'checkpoints/[0-9]*',
      lambda path: [
        sys.executable,
        str(_ROOT / 'eval.py'),
        f'--workdir={ours}',
        f'--checkpoint={path.name}',
        '--source=-',
        '--output=-',
      ],
    ),
    'JoeyNMT': TrainedSystem(
      joey,
      [
        baseline_python,
        '-m',
        'joeynmt',
        'train',
        '--skip-test',
        str(joey / 'config.yaml'),
      ],
      'model/[0-9]*.ckpt',
      lambda path: [
        baseline_python,
        '-m',
        'joeynmt',
        'translate',
        str(joeynmt.of_checkpoint(joey, path)),
      ],
    ),
    'Hugging Face': TrainedSystem(
      marian,
      [
        baseline_python,
        command,
        'train',
        str(text),
        str(vocabulary),
        source,
        target,
        str(marian),
        str(_CHECKPOINT_EVERY.value),
      ],
      'checkpoint-*',
      lambda path: [
        baseline_python,
        command,
        'translate',
        str(path),
        *[str(vocabulary)] * 2,
        '50',
      ],
    ),
  }


def beside(folder: Path, ending: str) -> Path:
  """Returns the path of a file next to a system's folder."""
  return folder.with_name(folder.name + ending)


def prepare(out: Path):
  """Writes the text and the vocabulary, which all systems share, and JoeyNMT's files."""
  (out / 'text').mkdir(parents=True, exist_ok=True)
  for name in ('train', 'valid', 'test'):
    for language in _LANGUAGES.value:
      lines = Path(_DATA.value, f'{name}.{language}').read_bytes()
      (out / f'text/{name}.{language}').write_bytes(lines)
      if name == 'valid':
        few = lines.split(b'\n')[:_FEW]
        (out / f'text/few.{language}').write_bytes(b'\n'.join(few) + b'\n')
  if not (out / 'pieces.model').exists():
    lines = (
      line
      for language in _LANGUAGES.value
      for line in read_lines(out / f'text/train.{language}')
    )
    Vocabulary.train(lines, _VOCABULARY_SIZE).save(out / 'pieces.model')
  (out / 'joeynmt').mkdir(exist_ok=True)
  joeynmt.write_config(
    out / 'joeynmt',
    out / 'text',
    out / 'pieces.model',
    tuple(_LANGUAGES.value),
    _CHECKPOINT_EVERY.value,
  )


def train(system: TrainedSystem, seconds: float):
  """Trains a system for some time, and writes the time of each checkpoint.

  Raises:
    UserError: the folder has checkpoints of a training that was stopped.
    RuntimeError: the training failed, or wrote no checkpoint.
  """
  folder, started, clock = system.folder, time.time(), time.monotonic()
  if any(folder.glob(system.checkpoints)):
    raise UserError(
      f'{folder} contains checkpoints of an interrupted training, which would distort the time; '
      'remove the folder'
    )
  for kept in folder.parent.glob(f'{folder.name}-*.txt'):
    kept.unlink()  # Translations by checkpoints that no longer exist.
  with open(beside(folder, '.log'), 'wb') as log:
    process = child_process.start_child(
      [], [], system.train, cwd=_ROOT, stdout=log, stderr=log
    )
    try:
      status = process.wait(seconds)
    except subprocess.TimeoutExpired:
      status = None
    finally:
      if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
  if status:
    raise RuntimeError(
      f'{system.train[:4]} ended with status {status}; see {beside(folder, ".log")}'
    )
  written = sorted(
    (path.stat().st_mtime - started, str(path.relative_to(folder)))
    for path in folder.glob(system.checkpoints)
  )
  if status is None:
    written = written[:-1]  # The newest may be incomplete if the process was killed.
  if not written:
    raise RuntimeError(
      f'{system.train[:4]} wrote no complete checkpoint in {seconds:g} s; lower '
      '--checkpoint_every, or raise --minutes'
    )
  files.write_json(
    beside(folder, '.json'),
    {'seconds': time.monotonic() - clock, 'checkpoints': written},
  )


def score(system: TrainedSystem, out: Path) -> dict:
  """Returns the BLEU of a system on valid by minutes, and on test."""
  times = json.loads(beside(system.folder, '.json').read_text())
  bleu_of = functools.partial(_bleu, system, out)
  curve, mark = [], _EVERY.value
  while 60 * mark < times['seconds'] + 1:
    there = [path for seconds, path in times['checkpoints'] if seconds <= 60 * mark]
    if there:
      curve.append((mark, bleu_of(there[-1], 'valid', _LINES.value)))
    mark += _EVERY.value
  _, last = times['checkpoints'][-1]
  count = len(read_lines(out / f'text/test.{_LANGUAGES.value[0]}'))
  return {
    'valid': curve,
    'test': bleu_of(last, 'test', count),
    'last': last,
    'minutes': times['seconds'] / 60,
  }


def _bleu(system: TrainedSystem, out: Path, path: str, split: str, count: int) -> float:
  """Returns the BLEU of a checkpoint on the first lines of a split; translations are cached."""
  source, target = (
    read_lines(out / f'text/{split}.{language}')[:count]
    for language in _LANGUAGES.value
  )
  kept = beside(system.folder, f'-{split}-{count}-{Path(path).stem}.txt')
  if not kept.exists():
    with open(beside(system.folder, '.log'), 'ab') as log:
      done = subprocess.run(
        system.translate(system.folder / path),
        cwd=_ROOT,
        check=True,
        input=''.join(line + '\n' for line in source).encode(),
        stdout=subprocess.PIPE,
        stderr=log,
      )
    files.write(kept, done.stdout)
  return corpus_score('BLEU', read_lines(kept), [target])


def draw(found: dict[str, dict], path: Path):
  """Plots the curves of all systems."""
  from matplotlib.figure import Figure

  figure = Figure(figsize=(6, 3.5), layout='constrained')
  axes = figure.subplots()
  for name, result in found.items():
    axes.plot(*zip(*result['valid'], strict=True), marker='.', label=name)
  axes.set_xlabel('minutes')
  axes.set_ylabel(f'BLEU on valid, first {_LINES.value} lines')
  axes.set_ylim(bottom=0)
  axes.legend()
  figure.savefig(path)


def main(_):
  """Trains or scores the systems."""
  logging.set_verbosity(logging.WARNING)
  out = Path(_OUT.value).absolute()
  if min(_EVERY.value, _MINUTES.value) <= 0:
    raise UserError('--every and --minutes must be above 0')
  if len(_LANGUAGES.value) != 2:
    raise UserError(
      f'--languages must name two, such as en,de; got {",".join(_LANGUAGES.value)!r}'
    )
  os.environ['JAX_PLATFORMS'] = 'cpu'  # The other systems also use the CPU.
  every = systems(out)
  if unknown := set(_SYSTEMS.value or ()) - every.keys():
    raise UserError(
      f'--systems must name some of {", ".join(every)}; got {", ".join(sorted(unknown))}'
    )
  chosen = {name: every[name] for name in _SYSTEMS.value or every}
  if not _SCORE.value:
    prepare(out)
    for name, system in chosen.items():
      if not beside(system.folder, '.json').exists():
        print(f'{name}: {_MINUTES.value:g} minutes', flush=True)
        train(system, 60 * _MINUTES.value)
    return
  untrained = [
    name for name, run in chosen.items() if not beside(run.folder, '.json').exists()
  ]
  if untrained:
    raise UserError(
      f'{", ".join(untrained)} must be trained before it is scored; remove --score'
    )
  found = {name: score(system, out) for name, system in chosen.items()}
  files.write_json(out / 'scores.json', found)
  draw(found, out / 'bleu_over_time.svg')
  print(machine('jax'), '\n')
  marks = sorted({mark for run in found.values() for mark, _ in run['valid']})
  print(f'| system | {" | ".join(f"{mark:g} min" for mark in marks)} | test |')
  print(f'| --- {"| --- " * len(marks)}| --- |')
  for name, run in found.items():
    curve = dict(run['valid'])
    cells = [f'{curve[mark]:.1f}' if mark in curve else '–' for mark in marks]
    print(f'| {name} | {" | ".join(cells)} | {run["test"]:.2f} |')


if __name__ == '__main__':
  command_line.run(main, use_compilation_cache=False)
