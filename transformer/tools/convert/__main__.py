"""Exports a trained model to other formats, and imports exported weights as a run.

  python -m transformer.tools.convert --workdir=RUN --format=ctranslate2 --output=DIR
  python -m transformer.tools.convert --workdir=RUN --format=ctranslate2 --output=DIR \\
      --quantization=int8 --average=5
  python -m transformer.tools.convert --workdir=RUN --format=huggingface --output=DIR
  python -m transformer.tools.convert --workdir=RUN --format=safetensors --output=FILE
  python -m transformer.tools.convert --weights=FILE --format=run --output=DIR
  python -m transformer.tools.convert --weights=FILE --format=vocabulary --output=FILE

  --format=     output
  ctranslate2   a folder for `ctranslate2.Translator`, with the SentencePiece model
  huggingface   a folder for `AutoModelForSeq2SeqLM` and `AutoTokenizer` of Hugging Face's
                transformers, a MarianMT or a Pegasus
  safetensors   one file with weights, config and vocabulary
  run           a run directory from such a file or a folder for transformers, for eval.py and
                --config.train.init_from
  vocabulary    a vocabulary for --config.data.vocabulary, from any SentencePiece model

Folders contain the model card, README.md. docs/export.md lists the differences of each format, such
as the search; docs/vocabulary.md explains the conversion of a vocabulary. The required packages are
in transformer/tools/convert/requirements.txt.
"""

import contextlib
import shlex
from pathlib import Path

from absl import flags, logging

from transformer import files
from transformer.cli import shared_flags
from transformer.config import Config
from transformer.data.config import NORMALIZATIONS
from transformer.data.vocabulary import vocabularies
from transformer.errors import UserError, warn_on_error
from transformer.system import command_line, outputs
from transformer.system.installation import rewrite_commands
from transformer.tools.convert.vocabulary_pieces import pieces_of

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_WEIGHTS = flags.DEFINE_string(
  'weights',
  None,
  "A file of --format=safetensors, or a folder of Hugging Face's transformers, for --format=run; "
  'a SentencePiece model for --format=vocabulary.',
)
_FORMATS = ('ctranslate2', 'huggingface', 'safetensors', 'run', 'vocabulary')
_TO_FILES = ('safetensors', 'vocabulary')
_OF_WEIGHTS = ('run', 'vocabulary')
# CTranslate2's types, except bfloat16, which needs PyTorch.
_TYPES = ('float32', 'float16', 'int16', 'int8', 'int8_float32', 'int8_float16')
_FORMAT = flags.DEFINE_enum('format', None, _FORMATS, 'The format to write.')
_OUTPUT = flags.DEFINE_string(
  'output', None, 'A new or empty folder to write, or a new file.'
)
_QUANTIZATION = flags.DEFINE_enum(
  'quantization',
  None,
  _TYPES,
  'The type in which CTranslate2 stores matrices (default: float32).',
)
_NORMALIZATION = flags.DEFINE_enum(
  'normalization',
  'identity',
  NORMALIZATIONS,
  'How a converted vocabulary normalizes text before tokenizing it, as data.normalization.',
)
_CHECKPOINT, _AVERAGE = shared_flags.define('checkpoint', 'average')


def main(_):
  """Writes the format given by flags."""
  output = _checked_output()
  kind = _FORMAT.value
  place = (
    contextlib.nullcontext(output) if kind in _TO_FILES else files.new_folder(output)
  )
  write = {'run': _to_run, 'vocabulary': _to_vocabulary}.get(kind, _export)
  with place as path:
    content = write(path)
  print(f'{output}: {content}')


def _checked_output() -> Path:
  """Checks the flags; returns the output path."""
  kind = _FORMAT.value
  of_weights = kind in _OF_WEIGHTS
  source = _WEIGHTS if of_weights else _WORKDIR
  other = _WORKDIR if of_weights else _WEIGHTS
  output = files.as_path(_OUTPUT.value or '').absolute()
  empty = kind not in _TO_FILES and output.is_dir() and not any(output.iterdir())
  if not kind:
    raise UserError(f'--format is missing; pass one of {", ".join(_FORMATS)}')
  if not source.value or other.value is not None:
    raise UserError(
      f'--format={kind} needs --{source.name}, and takes no --{other.name}'
    )
  if not _OUTPUT.value:
    raise UserError('--output is missing; pass the folder or file to write')
  if _QUANTIZATION.value is not None and kind != 'ctranslate2':
    raise UserError(
      f'--quantization is for --format=ctranslate2; --format={kind} keeps float32'
    )
  selects_checkpoint = _CHECKPOINT.value != _CHECKPOINT.default or _AVERAGE.value != 1
  if of_weights and selects_checkpoint:
    raise UserError(
      f'--checkpoint and --average are for a run with checkpoints; --format={kind} takes --weights'
    )
  if kind != 'vocabulary' and _NORMALIZATION.value != _NORMALIZATION.default:
    raise UserError('--normalization is for --format=vocabulary; remove it')
  if output.exists() and not empty:
    raise UserError(
      f'--output must be a new or empty folder, or a new file; {output} exists; choose a '
      'different one'
    )
  shared_flags.check_at_least(1, _AVERAGE)
  outputs.check_folder('output', output.parent)
  return output


def _export(path: Path) -> str:
  """Exports a run to another format; returns a human-readable description of the output."""
  # Imports JAX, so only after checking the flags.
  from transformer.runs.loading import (
    load_run,
  )

  run = load_run(_WORKDIR.value, _CHECKPOINT.value, _AVERAGE.value)
  origin = _origin(run.checkpoint_steps)
  if _FORMAT.value == 'safetensors':
    from transformer.tools.convert import safetensors_format

    models = vocabularies.model_files(run.vocabulary)
    weights = safetensors_format.Weights(
      run.config.to_dict(), models, run.checkpoint_steps, run.params
    )
    safetensors_format.write(path, weights)
    return f'a safetensors file, {origin}'
  vocabularies.save(run.vocabulary, path)
  if _FORMAT.value == 'huggingface':
    from transformer.tools.convert import huggingface_format

    huggingface_format.write_model(path, run.config, run.params, run.vocabulary)
    name = huggingface_format.MODELS[run.config.model.norm_position][1]
    export = f'a {name} model for transformers, {origin}'
    _copy_card(run.workdir, run.checkpoint_steps, path, export)
    return export
  from transformer.tools.convert import ctranslate2_format

  quantization = _QUANTIZATION.value or 'float32'
  longest = run.config.data.max_length + run.config.decode.max_extra_length
  pieces = pieces_of(run.vocabulary)
  ctranslate2_format.write_model(
    path, run.config.model, run.params, pieces, longest, quantization
  )
  export = f'a CTranslate2 model, {quantization}, {origin}'
  _copy_card(run.workdir, run.checkpoint_steps, path, export)
  return export


def _copy_card(workdir: Path, steps: list[int], folder: Path, export: str):
  """Writes the card of an export, from the card of its run if there is one."""
  with warn_on_error('the export has no card', logging.warning):
    from transformer.tools.card.exported_card import copy_card

    copy_card(workdir, steps, folder, _FORMAT.value, export)


def _to_run(folder: Path) -> str:
  """Writes a run from exported weights; returns a human-readable description of the output."""
  from transformer.runs.loading import save_run

  path = files.as_path(_WEIGHTS.value)
  if path.is_dir():
    from transformer.tools.convert.huggingface_import import read_model

    config, vocabulary, params = read_model(path)
    steps = [0]
    origin = 'of a folder for transformers'
  else:
    from transformer.tools.convert import safetensors_format

    settings, models, steps, params = safetensors_format.read(path)
    config = Config.from_dict(settings)
    origin = _origin(steps)
    vocabulary = vocabularies.from_model_files(models, str(path))
  save_run(folder, config, vocabulary, params, steps)
  return (
    f'a run with only weights, {origin}; {rewrite_commands("python eval.py")} '
    f'--workdir={shlex.quote(_OUTPUT.value)}'
  )


def _to_vocabulary(path: Path) -> str:
  from transformer.tools.convert.sentencepiece_import import import_sentencepiece

  vocabulary = import_sentencepiece(_WEIGHTS.value, _NORMALIZATION.value)
  vocabulary.save(path)
  return (
    f'a vocabulary of {vocabulary.size} pieces; set --config.data.vocabulary={path}, '
    f'--config.data.vocabulary_size={vocabulary.size} and '
    f'--config.data.normalization={vocabulary.normalization}'
  )


def _origin(steps: list[int]) -> str:
  """Returns a human-readable list of the averaged checkpoints' steps."""
  if len(steps) == 1:
    return f'step {steps[0]}'
  return f'the average of {len(steps)} checkpoints, the last of step {steps[-1]}'


start = command_line.entry_point(main)  # `attention-convert` calls it.

if __name__ == '__main__':
  start()
