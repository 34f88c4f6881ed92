"""The card of an export: the card of its run, adapted to the exported model."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from transformer import files
from transformer.tools.card.metadata import UNKNOWN_DATASET
from transformer.tools.card.model_card import CARD, REPORT, USE, card_text, use
from transformer.tools.card.run_facts import read_facts

_EXPORTED = (
  'Commands and digests above are of the run from which it was exported. Scores that the card tool '
  'wrote above are of the same checkpoint, or of the same average of checkpoints, before any '
  'quantization.'
)
# Parts of a card that depend on the exported model.
_ENTRIES = re.compile(r'^(?:metrics|model-index):.*\n(?:(?: |- ).*\n)*', re.MULTILINE)
_LIBRARY = re.compile(r'^(?:library_name:.*|- (?:jax|flax))\n', re.MULTILINE)
# The hub's id of a dataset follows its name.
_DATASETS = re.compile(r'( +name: .+\n +type: )(.+\n)')
_SECTIONS = ('Scores', 'How the scores were computed')


def copy_card(
  workdir: Path, steps: Sequence[int], folder: Path, format: str, export: str
):
  """Writes the card of an export, and copies the report of the run.

  The card is the card of the run with all edits, or a new one if the run has none. Its scores are
  of the exported model, and a section about the export is added.

  Args:
    steps: the exported checkpoints, whose mean is the model.
    format: the name of the format, such as `huggingface`.
    export: a description of the exported model.
  """
  if (workdir / REPORT).exists():
    shutil.copyfile(workdir / REPORT, folder / REPORT)
  facts = read_facts(workdir)._replace(steps=steps, export=format)
  card = card_text(facts)
  if (workdir / CARD).exists():
    old = (workdir / CARD).read_bytes().replace(b'\r\n', b'\n')
    card = _adapted(old.decode('utf-8', 'surrogateescape'), card)
    card = card.replace(USE, use(facts))
  section = f'## About this export\n\n{export[0].upper()}{export[1:]}. {_EXPORTED}\n'
  content = f'{card.rstrip()}\n\n{section}'
  files.write(folder / CARD, content.encode('utf-8', 'surrogateescape'))


def _adapted(card: str, new: str) -> str:
  """Returns a card with the metadata and sections about scores of a `new` card."""
  metadata, line, body = card.partition('\n---\n')
  if line and card.startswith('---\n'):
    kept = _ENTRIES.sub('', f'{metadata}\n')
    new_metadata = new.partition('\n---\n')[0] + '\n'
    added = ''.join(_ENTRIES.findall(new_metadata))
    library = 'library_name: transformers\n'
    if library in new_metadata:  # Then the model is no JAX model.
      kept = _LIBRARY.sub('', kept)
      added += library
    for name, hub_id in _DATASETS.findall(metadata):
      added = added.replace(f'{name}{UNKNOWN_DATASET}\n', name + hub_id)
    card = f'{kept}{added}---\n{body}'
  for title in _SECTIONS:
    section = re.compile(rf'^## {title}\n.*?(?=^## |\Z)', re.MULTILINE | re.DOTALL)
    card = ''.join(section.findall(new)).join(section.split(card))
  return card
