"""TensorFlow Datasets translation datasets with random access, from prepared files only."""

import hashlib
import json
from pathlib import Path
from unittest import mock

import tensorflow_datasets as tfds
from tensorflow_datasets.core import read_only_builder

from transformer import files, plugins
from transformer.data.config import DataConfig
from transformer.errors import UserError, short_repr

_features = tfds.features.FeatureConnector
_find_class = _features.cls_from_name


class TfdsCorpus:
  """One split of a translation dataset; its fingerprint covers TFDS's metadata, not the text."""

  def __init__(self, config: DataConfig, split: str):
    self.name = f'{config.tfds_name}:{split}'
    self._languages = config.source_language, config.target_language
    builder = open_dataset(config.tfds_name, config.dir)
    if builder is None:
      raise UserError(
        f'{config.tfds_name} is not prepared in {config.dir or "the folder of TFDS"}; '
        f'prepare it as docs/data.md says, or set --config.data.dir to its folder'
      )
    languages = languages_of(builder, config.tfds_name)
    if not set(self._languages) <= set(languages):
      raise UserError(
        f'{config.tfds_name} must hold the languages {" and ".join(self._languages)}; '
        f'it has {", ".join(languages)}; set --config.data.source_language and '
        '--config.data.target_language'
      )
    self._examples = builder.as_data_source(split)
    info = builder.info
    record = {
      'set': info.full_name,
      'split': split,
      'languages': self._languages,
      'splits': {
        key: [part.num_bytes, part.shard_lengths] for key, part in info.splits.items()
      },
    }
    content = json.dumps(record, sort_keys=True)
    self.fingerprint = hashlib.sha256(content.encode()).hexdigest()
    self.folder = Path(builder.data_path)

  def __len__(self) -> int:
    return len(self._examples)

  def __getitem__(self, pairs: slice) -> list[tuple]:
    source, target = self._languages
    examples = self._examples.__getitems__(range(*pairs.indices(len(self))))
    return [
      (example[source].decode(), example[target].decode()) for example in examples
    ]


def open_dataset(name: str, data_dir: str) -> tfds.core.DatasetBuilder | None:
  """Returns the builder of a prepared dataset, or None; an empty `data_dir` is TFDS's default."""
  with (
    plugins.as_user_error(
      'the name of a TFDS dataset must be like dataset/config or dataset/config:version; '
      f'{short_repr(name)} cannot be opened'
    ),
    mock.patch.object(_features, 'cls_from_name', staticmethod(_class_of_tfds)),
  ):
    try:
      return read_only_builder.builder_from_files(
        name, data_dir=str(files.as_path(data_dir)) if data_dir else None
      )
    except tfds.core.DatasetNotFoundError:
      return None


def _class_of_tfds(name: str) -> type:
  """Returns the TFDS class of a name in a dataset's files.

  TFDS 4.9.10 imports any class that a dataset names, which runs its code. No option prevents it.
  """
  if not name.startswith('tensorflow_datasets.'):
    raise UserError(
      f'the dataset requires {short_repr(name)}, which is not part of TFDS; prepare the '
      'dataset with '
      'only features of TFDS'
    )
  return _find_class(name)


def languages_of(builder: tfds.core.DatasetBuilder, name: str) -> list[str]:
  """Returns the languages of a dataset. Raises `UserError` if it is not a translation dataset."""
  texts = [
    key
    for key, feature in builder.info.features.items()
    if isinstance(feature, tfds.features.Text)
  ]
  if len(texts) < 2:
    raise UserError(
      f'{name} is not a translation dataset: it should have texts in two languages; it has '
      f'{", ".join(builder.info.features)}'
    )
  return texts
