"""Writes a trained model for other programs, and reads it back.

  python -m transformer.inference.export --workdir=RUN --format=ctranslate2 --output=DIR
  python -m transformer.inference.export --workdir=RUN --format=ctranslate2 --output=DIR \\
      --quantization=int8 --average=10
  python -m transformer.inference.export --workdir=RUN --format=safetensors --output=FILE
  python -m transformer.inference.export --weights=FILE --format=run --output=DIR

The first two write a folder that `ctranslate2.Translator` loads as it is, with the run's
vocabulary.model, by which text is cut into pieces; transformer/inference/ctranslate2_format.py
says in what its search differs. The third writes one safetensors file, named and described in
transformer/inference/safetensors_format.py, and the last makes of it a run's directory that
eval.py and --config.train.init_from read. Packages: transformer/inference/requirements.txt.
"""

import shlex
import sys
from pathlib import Path

from absl import flags, logging

from transformer import command_line, files
from transformer.config import Config
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.training import run_directory

_FORMATS = ('ctranslate2', 'safetensors', 'run')
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_WEIGHTS = flags.DEFINE_string('weights', None, 'A file of --format=safetensors, for --format=run.')
_FORMAT = flags.DEFINE_string('format', None, f'One of {", ".join(_FORMATS)}.')
_OUTPUT = flags.DEFINE_string('output', None, 'The folder to write, or the file; not there yet.')
_QUANTIZATION = flags.DEFINE_string('quantization', None, 'What CTranslate2 stores matrices as, '
                                    'such as int8; default: float32.')
_CHECKPOINT, _AVERAGE = command_line.define_checkpoint()


def main(_):
  """Wires flags to a format."""
  if _FORMAT.value not in _FORMATS:
    raise UserError(f'--format must be one of {", ".join(_FORMATS)}; got {_FORMAT.value!r}')
  source = _WEIGHTS if _FORMAT.value == 'run' else _WORKDIR
  other = _WORKDIR if _FORMAT.value == 'run' else _WEIGHTS
  if not source.value or other.value is not None:
    raise UserError(f'--format={_FORMAT.value} needs --{source.name}, and takes no --{other.name}')
  if not _OUTPUT.value:
    raise UserError('--output is needed, the folder to write, or the file')
  if _QUANTIZATION.value is not None and _FORMAT.value != 'ctranslate2':
    raise UserError(f'--quantization is for --format=ctranslate2; --format={_FORMAT.value} keeps '
                    f'every bit')
  command_line.check_at_least(1, _AVERAGE)
  output = Path(_OUTPUT.value).expanduser()
  _check_free(output)
  try:
    if _FORMAT.value == 'ctranslate2':
      told = _to_ctranslate2(output)
    elif _FORMAT.value == 'safetensors':
      told = _to_safetensors(output)
    else:
      told = _to_run(output)
  except ModuleNotFoundError as missing:
    package = missing.name.partition('.')[0]
    if package not in ('ctranslate2', 'safetensors'):
      raise
    raise UserError(f'--format={_FORMAT.value} needs {package}, which is not installed; install it '
                    f'with: {shlex.quote(sys.executable)} -m pip install -r '
                    f'transformer/inference/requirements.txt') from missing
  print(f'{output}: {told}')


def _check_free(output: Path):
  """Refuses to write over anything, before the work."""
  if output.is_dir() and _FORMAT.value != 'safetensors':
    if any(output.iterdir()):
      raise UserError(f'--output must name a folder that is empty, or not there; {output} holds '
                      f'something; choose another')
  elif output.exists():
    raise UserError(f'--output must name what is not there yet; {output} is; choose another, or '
                    f'remove it')
  command_line.check_folder('output', output.parent)


def _load():
  from transformer.run import load_run  # JAX is imported only now, after all mistakes in flags.
  return load_run(_WORKDIR.value, _CHECKPOINT.value, _AVERAGE.value)


def _to_ctranslate2(output: Path) -> str:
  from transformer.inference import ctranslate2_format
  quantization = _QUANTIZATION.value or 'float32'
  ctranslate2_format.check_quantization(quantization)
  settings = run_directory.read_config(Path(_WORKDIR.value).expanduser())
  if settings is not None:  # A model that is refused need not be read.
    ctranslate2_format.check_model(Config.from_dict(settings).model)
  run = _load()
  vocabulary, config = run.vocabulary, run.config
  with files.new_folder(output) as folder:
    ctranslate2_format.write_model(
        folder, config.model, run.params, [vocabulary.piece(i) for i in range(vocabulary.size)],
        config.data.max_length + config.decode.max_extra_length, quantization)
    (folder / run_directory.VOCABULARY).write_bytes(vocabulary.model_bytes)
    size = sum(path.stat().st_size for path in folder.iterdir())
  if config.model.dtype != 'float32':
    logging.info('activations were %s in training; CTranslate2 computes in what its compute_type '
                 'says', config.model.dtype)
  return f'a CTranslate2 model, {quantization}, {_origin(run.steps)}, {size / 1e6:.1f} MB'


def _to_safetensors(output: Path) -> str:
  from transformer.inference import safetensors_format
  run = _load()
  safetensors_format.write(output, safetensors_format.Weights(
      run.config.to_dict(), run.vocabulary.model_bytes, run.steps, run.params))
  return f'a safetensors file, {_origin(run.steps)}, {output.stat().st_size / 1e6:.1f} MB'


def _to_run(output: Path) -> str:
  from transformer.inference import safetensors_format
  path = Path(_WEIGHTS.value).expanduser()
  weights = safetensors_format.read(path)
  from transformer.run import save_run
  config = Config.from_dict(weights.config)
  vocabulary = Vocabulary.from_bytes(weights.vocabulary, f'the vocabulary in {path}')
  with files.new_folder(output) as folder:
    save_run(folder, config, vocabulary, weights.params, weights.steps)
  return f'a run of weights alone, {_origin(weights.steps)}; python eval.py --workdir={output}'


def _origin(steps: list[int]) -> str:
  several = f'the average of {len(steps)} checkpoints, the last of ' * (len(steps) > 1)
  return f'{several}step {steps[-1]}'


if __name__ == '__main__':
  command_line.run(main)
