"""Corpora of a folder of text files, for tests."""

from transformer.data.config import DataConfig
from transformer.data.text.corpus import Corpus
from transformer.data.text.sources import open_corpus


def open_text(folder, source: str, target: str) -> Corpus:
  """Opens the pairs of `train.SOURCE` and `train.TARGET`."""
  return open_corpus(DataConfig(source='text', dir=str(folder), source_language=source,
                                target_language=target), 'train')
