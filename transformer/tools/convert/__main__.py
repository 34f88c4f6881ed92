"""Exports a trained model to other formats, and makes a run of an exported file.

  python -m transformer.tools.convert --workdir=RUN --format=ctranslate2 --output=DIR
  python -m transformer.tools.convert --workdir=RUN --format=ctranslate2 --output=DIR \\
      --quantization=int8 --average=5
  python -m transformer.tools.convert --workdir=RUN --format=huggingface --output=DIR
  python -m transformer.tools.convert --workdir=RUN --format=safetensors --output=FILE
  python -m transformer.tools.convert --weights=FILE --format=run --output=DIR

  --format=     output
  ctranslate2   a folder for `ctranslate2.Translator`, with the SentencePiece model; its search
                differs, see transformer/tools/convert/ctranslate2_format.py
  huggingface   a folder for `AutoModelForSeq2SeqLM` and `AutoTokenizer` of Hugging Face's
                transformers, a MarianMT or a Pegasus; its search differs, see
                transformer/tools/convert/huggingface_format.py
  safetensors   one file with weights, config and vocabulary; its tensors are listed in
                transformer/tools/convert/safetensors_format.py
  run           a run's directory of such a file or of a folder for transformers, for eval.py and
                --config.train.init_from

transformer/tools/convert/requirements.txt has the packages.
"""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from absl import flags, logging

from transformer import files
from transformer.commands import shared_flags
from transformer.config import Config
from transformer.data.vocabulary import vocabularies
from transformer.errors import UserError
from transformer.runs import run_directory
from transformer.system import command_line, outputs
from transformer.system.installation import spell_commands
from transformer.tools.convert.vocabulary_pieces import pieces_of

_REQUIREMENTS = Path(__file__).absolute().parent / 'requirements.txt'
_FORMATS = ('ctranslate2', 'huggingface', 'safetensors', 'run')
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_WEIGHTS = flags.DEFINE_string('weights', None, 'A file of --format=safetensors, or a folder of '
                               'Hugging Face\'s transformers, for --format=run.')
_FORMAT = flags.DEFINE_string('format', None, f'One of {", ".join(_FORMATS)}.')
_OUTPUT = flags.DEFINE_string('output', None, 'A new or empty folder to write, or a new file.')
_QUANTIZATION = flags.DEFINE_string('quantization', None, 'The type in which CTranslate2 stores '
                                    'matrices, such as int8; default: float32.')
_CHECKPOINT, _AVERAGE = shared_flags.define_checkpoint()


def main(_):
  """Writes the format that the flags ask for."""
  if _FORMAT.value not in _FORMATS:
    raise UserError(f'--format must be one of {", ".join(_FORMATS)}; got {_FORMAT.value!r}')
  source = _WEIGHTS if _FORMAT.value == 'run' else _WORKDIR
  other = _WORKDIR if _FORMAT.value == 'run' else _WEIGHTS
  if not source.value or other.value is not None:
    raise UserError(f'--format={_FORMAT.value} needs --{source.name}, and takes no --{other.name}')
  if not _OUTPUT.value:
    raise UserError('--output is needed, the folder or file to write')
  if _QUANTIZATION.value is not None and _FORMAT.value != 'ctranslate2':
    raise UserError(f'--quantization is for --format=ctranslate2; --format={_FORMAT.value} keeps '
                    f'float32')
  shared_flags.check_at_least(1, _AVERAGE)
  for flag in (_CHECKPOINT, _AVERAGE):
    if _FORMAT.value == 'run' and flag.value != flag.default:
      raise UserError(f'--{flag.name} is for a run with checkpoints; --format=run takes --weights')
  output = Path(_OUTPUT.value).expanduser().absolute()
  _check_free(output)
  write = {'ctranslate2': _to_ctranslate2, 'huggingface': _to_huggingface,
           'safetensors': _to_safetensors, 'run': _to_run}
  try:
    print(f'{output}: {write[_FORMAT.value](output)}')
  except ModuleNotFoundError as missing:
    package = missing.name.partition('.')[0]
    if package not in ('ctranslate2', 'safetensors'):
      raise
    install = shlex.join([sys.executable, '-m', 'pip', 'install', '-r', str(_REQUIREMENTS)])
    raise UserError(f'--format={_FORMAT.value} needs {package}, which is not installed; install it '
                    f'with: {install}') from missing


def _check_free(output: Path):
  """Checks that the output replaces nothing and can be written."""
  if output.is_dir() and _FORMAT.value != 'safetensors':
    if any(output.iterdir()):
      raise UserError(f'--output must name a new or empty folder; {output} holds something; choose '
                      f'another')
  elif output.exists():
    raise UserError(f'--output must not exist yet; {output} does; choose another, or remove it')
  outputs.check_folder('output', output.parent)


def _load():
  from transformer.runs.loading import load_run  # Imports JAX, so only after the flags' checks.
  return load_run(_WORKDIR.value, _CHECKPOINT.value, _AVERAGE.value)


def _load_checked(check: Callable[[Config], None]):
  """Loads the run after a check of its settings, which comes before the parameters are read."""
  settings = run_directory.read_config(Path(_WORKDIR.value).expanduser())
  if settings is not None:
    check(Config.from_saved(settings))
  return _load()


def _to_ctranslate2(output: Path) -> str:
  from transformer.tools.convert import ctranslate2_format
  quantization = _QUANTIZATION.value or 'float32'
  ctranslate2_format.check_quantization(quantization)
  run = _load_checked(lambda config: ctranslate2_format.check_model(config.model))
  config = run.config
  with files.new_folder(output) as folder:
    ctranslate2_format.write_model(
        folder, config.model, run.params, pieces_of(run.vocabulary),
        config.data.max_length + config.decode.max_extra_length, quantization)
    vocabularies.save(run.vocabulary, folder)
    size = _size(folder)
  if config.model.dtype != 'float32':
    logging.info('activations were %s in training; CTranslate2 computes in the type of its '
                 'compute_type', config.model.dtype)
  return f'a CTranslate2 model, {quantization}, {_origin(run.steps)}, {size}'


def _to_huggingface(output: Path) -> str:
  from transformer.tools.convert import huggingface_format
  run = _load_checked(lambda config: huggingface_format.check_model(config.model))
  with files.new_folder(output) as folder:
    huggingface_format.write_model(folder, run.config, run.params, run.vocabulary)
    vocabularies.save(run.vocabulary, folder)
    size = _size(folder)
  name = huggingface_format.MODELS[run.config.model.norm][1]
  return f'a {name} model for transformers, {_origin(run.steps)}, {size}'


def _to_safetensors(output: Path) -> str:
  from transformer.tools.convert import safetensors_format
  run = _load()
  safetensors_format.write(output, safetensors_format.Weights(
      run.config.to_dict(), vocabularies.model_files(run.vocabulary), run.steps, run.params))
  return f'a safetensors file, {_origin(run.steps)}, {output.stat().st_size / 1e6:.1f} MB'


def _to_run(output: Path) -> str:
  path = Path(_WEIGHTS.value).expanduser()
  if path.is_dir():
    from transformer.tools.convert.huggingface_reading import read_model
    (config, vocabulary, params), steps = read_model(path), [0]
    origin = 'of a folder for transformers'
  else:
    from transformer.tools.convert import safetensors_format
    found = safetensors_format.read(path)
    config, params, steps = Config.from_saved(found.config), found.params, found.steps
    vocabulary = vocabularies.from_model_files(found.vocabulary, str(path))
    origin = _origin(steps)
  from transformer.runs.loading import save_run
  with files.new_folder(output) as folder:
    save_run(folder, config, vocabulary, params, steps)
  return (f'a run of weights alone, {origin}; {spell_commands("python eval.py")} '
          f'--workdir={shlex.quote(str(output))}')


def _size(folder: Path) -> str:
  """Returns the size of a folder's files in words."""
  return f'{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.1f} MB'


def _origin(steps: list[int]) -> str:
  """Returns the steps of the averaged checkpoints in words."""
  several = f'the average of {len(steps)} checkpoints, the last of ' * (len(steps) > 1)
  return f'{several}step {steps[-1]}'


def start():
  """Runs `main` with the flags of the command line; `attention-export` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
