"""The TFDS builder of `phrasebook/en-fr`; importing it registers the name with TFDS.

    builder = Phrasebook(config='en-fr', data_dir=DIR, file_format='array_record')
    builder.download_and_prepare()
    pairs = builder.as_data_source(split='train')

TFDS reads `array_record` at random access without TensorFlow. `pairs[i]` is
`{'en': bytes, 'fr': bytes}` in UTF-8.
"""

from collections.abc import Iterator, Sequence

import tensorflow_datasets as tfds

from transformer.data.phrasebook.corpus import Pair, generate


class Phrasebook(tfds.core.GeneratorBasedBuilder):
  """English-French sentences from a small grammar, generated in seconds with no download."""

  VERSION = tfds.core.Version('1.0.0')
  # The sentences change with the grammar: raise the version when they do.
  RELEASE_NOTES = {'1.0.0': 'First release.'}  # noqa: RUF012
  BUILDER_CONFIGS = [  # noqa: RUF012
    tfds.core.BuilderConfig(name='en-fr', description='English to French.')]

  def _info(self) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
      builder=self,
      description='English-French sentences from a small grammar; validation and test combine '
                  'known words in ways that train never shows.',
      features=tfds.features.Translation(languages=('en', 'fr')),
      supervised_keys=('en', 'fr'))

  def _split_generators(self, dl_manager: tfds.download.DownloadManager
                        ) -> dict[str, Iterator[tuple[int, dict[str, str]]]]:
    del dl_manager  # Nothing is downloaded.
    return {name: self._generate_examples(pairs) for name, pairs in generate().items()}

  def _generate_examples(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, dict[str, str]]]:
    for key, pair in enumerate(pairs):
      yield key, {'en': pair.en, 'fr': pair.fr}
