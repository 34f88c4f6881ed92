"""Damages the files of a run in every way, and checks that all damage is detected.

  python -m tests.faults.damage [--positions=64] [--resumed=5]

| files of a tiny run | damage, at many positions |
| --- | --- |
| newest checkpoint | cut, delete, rename, flip one bit |
| `config.json`, `run.json`, `vocabulary.model`, encoded corpus | cut, delete, flip one bit |

Each time, scoring must refuse in one line that names the file. Training must refuse too, or fall
back to the checkpoint before. A few times it continues to the end, where the checkpoint must be
the same bit for bit. The exit status is 1 if any damage was not detected.
"""

import argparse
import collections
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
from absl import logging

from transformer.config import Config
from transformer.data.config import SHARED_VOCABULARY
from transformer.data.corpora import encode_corpora, open_corpora
from transformer.data.vocabulary import vocabularies
from transformer.errors import UserError
from transformer.experiment.training import train_run
from transformer.runs import run_directory
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.loading import load_run

DAMAGES = ('flip', 'cut', 'delete', 'rename')
# Damage to files that may have any name.
CONTENT_DAMAGES = DAMAGES[:3]
WORDS = ['man', 'dog', 'red', 'shirt', 'mann', 'hund', 'rot', 'hemd', 'läuft', 'runs', 'über']


def files_of(folder: Path) -> list[str]:
  """Returns all files in a folder and its folders, as paths in the folder."""
  return sorted(path.relative_to(folder).as_posix() for path in folder.rglob('*')
                if path.is_file())


def damaged(whole: Path, copy: Path, name: str, kind: str, positions: int) -> Iterator[str]:
  """Copies a folder, and damages one file of the copy, again and again.

  Args:
    whole: the folder, which stays as it is.
    copy: the path of the copy; an older copy is removed.
    name: the file's path in the folder.
    kind: one of `DAMAGES`.
    positions: number of positions, spread evenly, for `flip` and `cut`.

  Yields:
    A description of the damage that `copy` has at this moment.
  """
  shutil.rmtree(copy, ignore_errors=True)
  shutil.copytree(whole, copy)
  path = copy / name
  content = path.read_bytes()
  places = sorted({index * len(content) // positions for index in range(positions)}
                  | {len(content) - 1}) if content else []
  if kind == 'flip':
    for number, place in enumerate(places):
      bit = number % 8
      path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1:])
      yield f'bit {bit} of byte {place} of {name} flipped'
  elif kind == 'cut':
    for place in places:
      path.write_bytes(content[:place])
      yield f'{name} cut to {place} of {len(content)} bytes'
  elif kind == 'delete':
    path.unlink()
    yield f'{name} deleted'
  else:
    path.rename(path.with_name(path.name + 'x'))
    yield f'{name} renamed'


class Tally:
  """Numbers of checks, and descriptions of the damage that was not detected."""

  def __init__(self):
    self.tried = collections.Counter()
    self.unseen: list[str] = []

  def refused(self, group: str, done: str, name: str, action: Callable):
    """Counts a check that an action ends in one line that names a file."""
    self.tried[group] += 1
    try:
      action()
    except UserError as error:
      text = str(error)
      if '\n' not in text and name in text:
        return
      done += f', with the message: {text}'
    self.unseen.append(f'{group}: {done}')

  def expect(self, group: str, done: str, right: bool):
    """Counts a check whose result must be True."""
    self.tried[group] += 1
    if not right:
      self.unseen.append(f'{group}: {done}')


def tiny_config(folder: Path) -> Config:
  """Returns the config of a run of four steps; writes random words for it into a folder."""
  rng = np.random.default_rng(0)
  folder.mkdir(parents=True)
  for split, count in (('train', 40), ('valid', 2)):
    for language in ('en', 'de'):
      lines = (' '.join(rng.choice(WORDS, 5)) for _ in range(count))
      (folder / f'{split}.{language}').write_text(''.join(f'{line}\n' for line in lines), 'utf-8')
  return Config.from_dict({
      'data': {'source': 'text', 'dir': str(folder), 'valid': 'valid', 'test': 'valid',
               'target_language': 'de', 'vocabulary_size': 300, 'max_length': 64},
      'model': {'num_layers': 1, 'model_dim': 8, 'ff_dim': 11, 'num_heads': 2},
      'train': {'tokens_per_batch': 4 * 64, 'steps': 4, 'checkpoint_every': 2, 'eval_every': 4},
      'decode': {'max_extra_length': 3, 'batch_size': 4}})


def read(checkpoints: Path, step: int):
  """Returns the content of a checkpoint."""
  with contextlib.closing(Checkpoints(checkpoints, read_only=True)) as opened:
    found = dict(opened._manager.restore(step))
  found['history'].pop('log')  # A digest of metrics.jsonl, whose lines hold times.
  return found


def same(one, other) -> bool:
  """Returns whether two checkpoints hold the same parameters, optimizer and history."""
  leaves, structure = jax.tree.flatten(one)
  others, another = jax.tree.flatten(other)
  return (structure == another and len(jax.tree.leaves(one['params'])) > 9
          and all(map(np.array_equal, leaves, others)))


def damage_checkpoint(run: Path, copy: Path, positions: int, tally: Tally):
  """Damages every file of the newest checkpoint in every way; in one way for one position."""
  for number, name in enumerate(files_of(run / 'checkpoints' / '4')):
    for kind in DAMAGES if positions > 1 else DAMAGES[number % len(DAMAGES):][:1]:
      for done in damaged(run, copy, f'checkpoints/4/{name}', kind, positions):
        tally.refused(f'checkpoint, {kind}: scored', done, name, lambda: load_run(copy, 'latest'))
        with contextlib.closing(Checkpoints(copy / 'checkpoints')) as opened:
          tally.expect(f'checkpoint, {kind}: resumed from the one before', done,
                       opened.fall_back() == 2 and opened.steps() == [2])
        (copy / 'checkpoints' / '4.damaged').rename(copy / 'checkpoints' / '4')


def damage_description(config: Config, run: Path, copy: Path, positions: int, tally: Tally):
  """Damages the files that describe a run."""
  for name in (run_directory.CONFIG, run_directory.RUN, *SHARED_VOCABULARY):
    for kind in CONTENT_DAMAGES:
      for done in damaged(run, copy, name, kind, positions):
        tally.refused(f'{name}, {kind}: scored', done, name, lambda: load_run(copy, 'latest'))
        if name == run_directory.CONFIG and kind != 'delete':
          tally.refused(f'{name}, {kind}: resumed', done, name,
                        lambda: run_directory.read_config(copy))
        elif name == run_directory.RUN or kind != 'delete':  # A vocabulary is made again.
          tally.refused(f'{name}, {kind}: resumed', done, name, lambda: train_run(config, copy))


def damage_corpus(config: Config, run: Path, data: Path, positions: int, tally: Tally):
  """Damages the encoded corpus, which is then made again."""
  vocabulary = vocabularies.load(run)
  folder, = (path for path in (data / 'encoded').iterdir() if path.is_dir())
  whole = shutil.copytree(folder, data.parent / 'encoded')

  def batch():
    return encode_corpora(config.data, open_corpora(config.data), vocabulary,
                          config.train.tokens_per_batch, 0).batches[0]

  wanted = batch()
  for name in files_of(whole):
    for kind in CONTENT_DAMAGES:
      for done in damaged(whole, folder, name, kind, positions):
        tally.expect(f'encoded corpus, {kind}: made again', done,
                     all(map(np.array_equal, batch(), wanted)))
  shutil.rmtree(folder)
  shutil.copytree(whole, folder)


def resume(config: Config, run: Path, copy: Path, times: int, tally: Tally):
  """Damages the newest checkpoint, resumes the run, and compares its end."""
  wanted = read(run / 'checkpoints', 4)
  names = files_of(run / 'checkpoints' / '4')
  for number in range(times):
    kind = DAMAGES[number % len(DAMAGES)]
    name = names[7 * number % len(names)]
    done = next(damaged(run, copy, f'checkpoints/4/{name}', kind, 1))
    train_run(config, copy)
    tally.expect('resumed to the end, which is the same bit for bit', done,
                 same(read(copy / 'checkpoints', 4), wanted)
                 and (copy / 'checkpoints' / '4.damaged').is_dir())


def try_all(folder: Path, positions: int, resumed: int) -> Tally:
  """Trains a run in a folder, and counts the checks of all kinds of damage."""
  tally = Tally()
  data, run, copy = folder / 'data', folder / 'run', folder / 'copy'
  config = tiny_config(data)
  train_run(config, run)
  with contextlib.closing(Checkpoints(run / 'checkpoints', read_only=True)) as opened:
    tally.expect('whole run: scored and resumed', 'nothing',
                 load_run(run, 'latest').steps == [4] and opened.fall_back() == 4)
  damage_checkpoint(run, copy, positions, tally)
  damage_description(config, run, copy, positions, tally)
  damage_corpus(config, run, data, positions, tally)
  resume(config, run, copy, resumed, tally)
  return tally


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--positions', type=int, default=64, help='Positions of damage in each file.')
  parser.add_argument('--resumed', type=int, default=5, help='Times that the run is resumed.')
  arguments = parser.parse_args()
  logging.set_verbosity(logging.ERROR)
  with tempfile.TemporaryDirectory() as folder:
    tally = try_all(Path(folder), arguments.positions, arguments.resumed)
  for group, count in tally.tried.items():
    print(f'{count:7,}  {group}')
  print(f'{sum(tally.tried.values()):7,}  in total; not detected: {len(tally.unseen)}')
  for each in tally.unseen:
    print(f'  {each}')
  sys.exit(bool(tally.unseen))


if __name__ == '__main__':
  main()
