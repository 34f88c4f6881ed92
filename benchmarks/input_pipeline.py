"""Times the input pipeline: encoding, packing and the first batch, against Grain's packing.

  python benchmarks/input_pipeline.py
  python benchmarks/input_pipeline.py --text=data/multi30k/train --languages=en,de \
      --encode_pairs=1000000
  python benchmarks/input_pipeline.py --pairs=40000000 --encode_pairs=0

- Encoding: the text is repeated to `encode_pairs` pairs and encoded to disk as in `train.py`. The
  baseline is SentencePiece's batch call on all cores, in memory. Then the text is segmented into
  batches, with and without BPE-dropout.
- Packing: `pairs` pairs of random tokens, with lengths like WMT's (28 on average, 256 at most), are
  read from an encoding on disk, shuffled, and packed into batches of 100 rows of 256 positions by
  the iterator of training. The baseline is Grain's first-fit packing of the same pairs into the
  same rows.
- First batch: the batch of a late step in a new process, including opening the encoding and
  verifying its checksums.

An encoding of 40 million pairs takes 5 GB of `dir` and is removed at the end.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grain
import numpy as np
import sentencepiece
from absl import app, flags
from grain.experimental import FirstFitPackIterDataset

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from side_by_side import machine, peak_bytes

from transformer.data import encoded_cache
from transformer.data.batches.augmentation import AugmentedBatches
from transformer.data.batches.training_batches import TrainingBatches, batch_shape
from transformer.data.config import DataConfig
from transformer.data.encoding import Sentences, encode_in_memory, filter_for_training
from transformer.data.text.text_files import TextCorpus
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.tools.phrasebook import pairs_of
from transformer.tools.subwords import bpe_dropout

_PAIRS = flags.DEFINE_integer('pairs', 200_000, 'Pairs to pack.')
_ENCODE_PAIRS = flags.DEFINE_integer(
  'encode_pairs', 100_000, 'Pairs to encode; 0 skips encoding.'
)
_TEXT = flags.DEFINE_string(
  'text', '', 'Prefix of two text files; empty means the phrasebook.'
)
_LANGUAGES = flags.DEFINE_list(
  'languages', ['en', 'de'], 'The extensions of the two files.'
)
_REPEATS = flags.DEFINE_integer('repeats', 5, 'Timed parts of each system.')
_BATCHES = flags.DEFINE_integer('batches', 50, 'Batches in a timed part.')
_DIR = flags.DEFINE_string(
  'dir', '', 'Folder for temporary files; empty is the default.'
)
_FIRST_OF = flags.DEFINE_string(
  'first_of', '', 'Only measure the time to the first batch of this encoding.'
)
_LENGTH, _TOKENS_PER_BATCH, _VOCABULARY = 256, 25_600, 37_000
_LATE_STEP = 1_000_003
_READY = 9  # Batches that a system may have computed before the clock starts.
_DROPOUT = 0.1
_CHUNK = 500_000


class Repeated:
  """A corpus that repeats a text; see `transformer.data.text.sources.Corpus`."""

  def __init__(self, pairs, count: int, folder: Path):
    self.name, self.fingerprint, self.notes, self.folder = 'text', 'text', (), folder
    self._pairs, self._count = pairs, count

  def __len__(self) -> int:
    return self._count

  def __getitem__(self, index):
    if not isinstance(index, slice):
      return self._pairs[index % len(self._pairs)]
    return [self[i] for i in range(*index.indices(len(self)))]


def text_and_vocabulary() -> tuple[list[tuple[str, str]], Vocabulary]:
  """Returns the text to encode, and a vocabulary that is learned from it."""
  if _TEXT.value:
    path, (source, target) = Path(_TEXT.value), _LANGUAGES.value
    text = TextCorpus(
      DataConfig(
        'text', dir=str(path.parent), source_language=source, target_language=target
      ),
      path.name,
    )[:]
  else:
    text = pairs_of('train')
  return text, Vocabulary.train((side for pair in text for side in pair), 2500)


def time_encoding(folder: Path, text, vocabulary: Vocabulary) -> dict[str, list[float]]:
  """Returns the pairs per second of each repeat, by system."""
  few, cores = text[:20_000], len(os.sched_getaffinity(0))
  sides = [side for pair in few for side in pair]
  pieces = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model_bytes)
  ours, theirs = [], []
  for number in range(_REPEATS.value):
    corpus = Repeated(text, _ENCODE_PAIRS.value, folder / str(number))
    ours.append(
      len(corpus)
      / seconds(lambda corpus=corpus: encoded_cache.load_or_encode(corpus, vocabulary))
    )
    theirs.append(
      len(few)
      / seconds(
        lambda: [np.array(ids) for ids in pieces.encode(sides, num_threads=cores)]
      )
    )
  return {'encoding, once': ours, 'SentencePiece, its batch call': theirs}


def time_dropout(text, vocabulary: Vocabulary) -> dict[str, list[float]]:
  """Returns target tokens per second with and without BPE-dropout; both take turns."""
  pairs = filter_for_training(*encode_in_memory(text, vocabulary), _LENGTH)
  plain = TrainingBatches(
    [pairs], [1.0], batch_shape(_TOKENS_PER_BATCH, _LENGTH, [pairs]), seed=0
  )
  dropped = AugmentedBatches(
    plain,
    [('bpe_dropout', bpe_dropout(DataConfig(), vocabulary, _DROPOUT))],
    seed=0,
  )
  systems = {
    f'cut anew, BPE-dropout {_DROPOUT}, and packed': dropped,
    'always cut alike': plain,
  }
  speeds = {name: [] for name in systems}
  for number in range(_REPEATS.value):
    for name, batches in systems.items():
      # A whole window, because its first batch encodes all of it.
      start = number * dropped.batches_per_window
      began = time.perf_counter()
      real = sum(
        np.count_nonzero(batch.target_segments)
        for batch in batches.iterate(start, start + dropped.batches_per_window)
      )
      speeds[name].append(real / (time.perf_counter() - began))
  return speeds


def write_synthetic(place: Path):
  """Writes an encoding of random tokens with lengths like WMT's."""
  rng = np.random.default_rng(0)

  def sentences(lengths):
    lengths = np.clip(lengths.round(), 2, _LENGTH).astype(np.int32)
    return Sentences.from_lengths(
      rng.integers(4, _VOCABULARY, lengths.sum(), np.uint16), lengths
    )

  def chunks():
    for first in range(0, _PAIRS.value, _CHUNK):
      source = rng.lognormal(3.1, 0.65, min(_CHUNK, _PAIRS.value - first))
      yield (
        sentences(source),
        sentences(source * rng.lognormal(0.02, 0.25, len(source))),
      )

  encoded_cache.write_encoding(place, chunks(), _PAIRS.value)


def open_batches(place: Path) -> TrainingBatches:
  """Returns the batches of an encoding, as in `train.py`."""
  pairs = filter_for_training(
    *encoded_cache.read_encoding(place, np.dtype(np.uint16)), _LENGTH
  )
  return TrainingBatches(
    [pairs], [1.0], batch_shape(_TOKENS_PER_BATCH, _LENGTH, [pairs]), seed=0
  )


def grain_batches(place: Path):
  """Returns an iterator of batches that Grain packs from memory-mapped arrays."""
  sides = {}
  for name in ('source', 'target'):
    lengths = np.fromfile(place / f'{name}.lengths', np.int32)
    ends = np.cumsum(lengths, dtype=np.int64)
    tokens = np.asarray(np.memmap(place / f'{name}.tokens', np.uint16, 'r'))
    sides[name] = tokens, np.stack([ends - lengths, ends], axis=1)

  def pair(index):
    return {
      name: tokens[slice(*spans[index])].astype(np.int32)
      for name, (tokens, spans) in sides.items()
    }

  rows = _TOKENS_PER_BATCH // _LENGTH
  data = grain.MapDataset.range(_PAIRS.value).shuffle(seed=0).map(pair).repeat()
  packed = FirstFitPackIterDataset(
    data.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=500)),
    length_struct={'source': _LENGTH, 'target': _LENGTH},
    num_packing_bins=rows,
  )
  return iter(packed.batch(rows))


def time_packing(place: Path) -> tuple[dict[str, list[float]], dict[str, float]]:
  """Returns target tokens per second and the fraction of filled positions, by system, in turns."""
  ours = open_batches(place).iterate(0, 1 << 30)
  systems = {
    'packing, plan to batch': (ours, lambda batch: batch.target_segments),
    "Grain's first-fit packing": (
      grain_batches(place),
      lambda batch: batch['target_segment_ids'],
    ),
  }
  speeds, fills = ({name: [] for name in systems} for _ in range(2))
  for batches, _ in systems.values():
    next(batches)
  for _ in range(_REPEATS.value):
    for name, (batches, segments_of) in systems.items():
      for _ in range(_READY):
        next(batches)
      began, real = time.perf_counter(), 0
      for _ in range(_BATCHES.value):
        real += np.count_nonzero(segments_of(next(batches)))
      speeds[name].append(real / (time.perf_counter() - began))
      fills[name].append(real / (_BATCHES.value * _TOKENS_PER_BATCH))
  return speeds, {name: statistics.mean(shares) for name, shares in fills.items()}


def first_batch(place: Path) -> dict[str, float]:
  """Returns the seconds until a late step's batch is ready, and this process's peak memory."""
  took = seconds(
    lambda: next(open_batches(place).iterate(_LATE_STEP, _LATE_STEP + 100))
  )
  return {'seconds': took, 'gigabytes': peak_bytes() / 1e9}


def time_first_batch(place: Path) -> list[dict[str, float]]:
  """Returns the results of `first_batch` in several new processes."""
  return [
    json.loads(
      subprocess.run(
        [sys.executable, __file__, f'--first_of={place}', f'--pairs={_PAIRS.value}'],
        capture_output=True,
        text=True,
        check=True,
      ).stdout
    )
    for _ in range(_REPEATS.value)
  ]


def seconds(function) -> float:
  """Returns the seconds that a call takes."""
  began = time.perf_counter()
  function()
  return time.perf_counter() - began


def table(what: str, speeds: dict[str, list[float]], notes=None):
  """Prints medians, ranges, and ratios to the last system, the baseline."""
  baseline = statistics.median(list(speeds.values())[-1])
  print(f'\n| {what} | median | from … to | ratio | |\n| --- | --- | --- | --- | --- |')
  for name, rate in speeds.items():
    median = statistics.median(rate)
    print(
      f'| {name} | {median:,.0f} | {min(rate):,.0f} … {max(rate):,.0f} | {median / baseline:.2f} '
      f'| {(notes or {}).get(name, "")} |'
    )


def main(_):
  """Runs the benchmarks that the flags choose, and prints tables."""
  if _FIRST_OF.value:
    print(json.dumps(first_batch(Path(_FIRST_OF.value))))
    return
  print(machine('numpy', 'grain', 'sentencepiece'))
  with tempfile.TemporaryDirectory(dir=_DIR.value or None) as folder:
    folder = Path(folder)
    if _ENCODE_PAIRS.value:
      text, vocabulary = text_and_vocabulary()
      speeds = time_encoding(folder, text, vocabulary)
      name, million = (
        next(iter(speeds)),
        1e6 / statistics.median(next(iter(speeds.values()))),
      )
      table(
        f'pairs a second, {_ENCODE_PAIRS.value:,} pairs',
        speeds,
        {name: f'a million pairs in {million:.0f} s'},
      )
      table(
        f'target tokens a second, {len(text):,} pairs of text',
        time_dropout(text, vocabulary),
      )
    place = folder / 'synthetic'
    write_synthetic(place)
    speeds, fills = time_packing(place)
    table(
      f'target tokens a second, {_PAIRS.value:,} pairs',
      speeds,
      {name: f'{fill:.1%} full' for name, fill in fills.items()},
    )
    took = time_first_batch(place)
    print(
      f'\n| first batch of step {_LATE_STEP:,}, {_PAIRS.value:,} pairs | median | from … to |\n'
      '| --- | --- | --- |'
    )
    for what in took[0]:
      cost = [one[what] for one in took]
      print(
        f'| {what} | {statistics.median(cost):.1f} | {min(cost):.1f} … {max(cost):.1f} |'
      )


if __name__ == '__main__':
  app.run(main)
