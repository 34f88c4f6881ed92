"""The vocabulary of a run, with a `source` and a `target`: one shared vocabulary, or two."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from transformer import files
from transformer.data.config import SEPARATE_VOCABULARIES, SHARED_VOCABULARY
from transformer.data.vocabulary.vocabulary import Vocabulary, read_model
from transformer.errors import UserError


class SeparateVocabularies(NamedTuple):
  """A vocabulary for each language."""

  source: Vocabulary
  target: Vocabulary


RunVocabulary = Vocabulary | SeparateVocabularies


def is_shared(vocabulary: RunVocabulary) -> bool:
  """Returns whether both languages share one vocabulary."""
  return vocabulary.source is vocabulary.target


def model_files(vocabulary: RunVocabulary) -> dict[str, bytes]:
  """Returns the SentencePiece models by file name."""
  return {name: side.model_bytes for name, side in _by_file(vocabulary).items()}


def fingerprints(vocabulary: RunVocabulary) -> dict[str, str]:
  """Returns the SHA-256 of each model, by file name without `.model`."""
  return {
    Path(name).stem: side.fingerprint for name, side in _by_file(vocabulary).items()
  }


def _by_file(vocabulary: RunVocabulary) -> dict[str, Vocabulary]:
  names = SHARED_VOCABULARY if is_shared(vocabulary) else SEPARATE_VOCABULARIES
  return dict(zip(names, (vocabulary.source, vocabulary.target), strict=False))


def from_model_files(
  models: Mapping[str, bytes], place: files.StrPath
) -> RunVocabulary:
  """Returns the vocabulary of models as from `model_files`; `place` is for error messages."""
  for names in (SHARED_VOCABULARY, SEPARATE_VOCABULARIES):
    if models.keys() == set(names):
      sides = [Vocabulary(models[name], f'{name} of {place}') for name in names]
      return sides[0] if len(sides) == 1 else SeparateVocabularies(*sides)
  raise UserError(
    f'{place} should contain vocabulary.model, or vocabulary.source.model and '
    f'vocabulary.target.model; it contains {" and ".join(models) or "neither"}; restore it from '
    'a copy'
  )


def save(vocabulary: RunVocabulary, folder: files.StrPath):
  """Writes the model files of a vocabulary into a folder, each atomically."""
  for name, model in model_files(vocabulary).items():
    files.write(Path(folder, name), model)


def load(
  folder: files.StrPath, digests: Mapping[str, str] | None = None
) -> RunVocabulary:
  """Reads the vocabulary of a run's directory.

  Raises `UserError` unless the SHA-256 of each model is its entry in `digests`, keyed as in
  `fingerprints`; other keys are ignored. None loads the models without this check.
  """
  first = Path(folder, SEPARATE_VOCABULARIES[0])
  separate = first.exists() if digests is None else first.stem in digests
  names = SEPARATE_VOCABULARIES if separate else SHARED_VOCABULARY
  vocabulary = from_model_files(
    {name: read_model(Path(folder, name)) for name in names}, folder
  )
  for name, digest in fingerprints(vocabulary).items():
    if digests is not None and digest != digests.get(name):
      raise UserError(
        f'{name}.model of {folder} is damaged, or was replaced since the run started; its '
        f'SHA-256 should be {digests.get(name)}; restore it from a copy'
      )
  return vocabulary
