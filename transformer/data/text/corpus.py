"""The interface of a corpus: sentence pairs, and where they come from.

`data.source` names the class of a run's corpora: `text`, `tfds`, or MODULE:CLASS for a class of
one's own, which is called once for each split. This one reads the first two columns of tables:

    class Table:
      def __init__(self, data, split):  # `data` has the settings of `config.data`.
        text = pathlib.Path(data.dir, f'{split}.csv').read_text('utf-8')
        self._pairs = [(row[0], row[1]) for row in csv.reader(text.splitlines())]
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

      def __len__(self):
        return len(self._pairs)

      def __getitem__(self, pairs):
        return self._pairs[pairs]

Beside `fingerprint`, such a class may have the other attributes of a `Corpus`.

- The class finds every mistake in its files when it is called, as far as that is quick; so
  `train.py --check` reports it. What it raises is shown in one line.
- The fingerprint of each corpus is recorded in `run.json`. A run is resumed only on the same.
  The digest of the class's module is recorded too; a change of it is a warning.
- Training imports the module, and so does a command that reads a split of the run. A command that
  translates other text does not.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

# Subfolder of a corpus's `folder` for files that are computed from the corpus.
FOLDER = 'encoded'


class Corpus(Protocol):
  """Sentence pairs by number; can be pickled, and read by many threads at a time.

  Attributes:
    name: a name for people, such as `wmt14_translate/de-en:train`.
    fingerprint: SHA-256 in hexadecimal, the same on every machine. It covers the whole text, but
      for a TFDS set, where it covers only the metadata.
    notes: sentences about what was changed while reading, and about what looks odd.
    folder: where files that are computed from the corpus are kept; None keeps none.
    gold: a line for each pair, which metrics of one's own get in place of the targets; None if they
      get the targets.
  """

  name: str
  fingerprint: str
  notes: tuple[str, ...]
  folder: Path | None
  gold: Sequence[str] | None

  def __len__(self) -> int:
    """Returns the number of pairs, at least one."""

  def __getitem__(self, pairs: slice) -> list[tuple[str, str]]:
    """Returns consecutive pairs, each a source and a target sentence."""


def check_slice(index: slice, length: int) -> tuple[int, int]:
  """Returns the start and the stop of a slice, in [0, length].

  Raises:
    ValueError: the step of the slice is not 1.
  """
  start, stop, step = index.indices(length)
  if step != 1:
    raise ValueError(f'the slice of a corpus must have a step of 1; got a step of {step}')
  return start, max(start, stop)
