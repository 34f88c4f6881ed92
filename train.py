"""Trains a Transformer from a config.

  python train.py --config=configs/NAME.py --workdir=DIR [--config.group.key=value …]

A directory that holds a run is resumed. The keys, what they mean and their
defaults are in transformer/*/config.py.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import jax
from absl import flags, logging
from ml_collections import config_flags

from transformer import command_line
from transformer.config import Config, flatten
from transformer.data.corpora import encode_corpora, open_corpora
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.inference.bleu import corpus_bleu
from transformer.inference.translate import Translator
from transformer.model.transformer import Transformer
from transformer.run import Run, load_run
from transformer.training import run_directory
from transformer.training.loop import train
from transformer.training.mesh import make_mesh
from transformer.training.step import init_params

_CONFIG = config_flags.DEFINE_config_file('config', None, 'The config file.')
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')


def main(_):
  """Wires a config to a run."""
  if _CONFIG.value is None or not _WORKDIR.value:
    raise UserError('--config=configs/NAME.py and --workdir=DIR are both needed')
  config = Config.from_dict(_CONFIG.value.to_dict())
  workdir = Path(_WORKDIR.value).expanduser()
  _check_workdir(workdir, config)
  if config.optimizer.warmup_steps >= config.train.steps:
    logging.warning('the learning rate is still warming up at the end: '
                    'optimizer.warmup_steps=%d, train.steps=%d',
                    config.optimizer.warmup_steps, config.train.steps)
  # What depends on the devices is refused before anything is read or written.
  if config.model.attention == 'cudnn' and jax.default_backend() != 'gpu':
    raise UserError(f'model.attention=cudnn needs an NVIDIA GPU; JAX runs on '
                    f'{jax.default_backend()} here; set --config.model.attention=reference')
  rows = config.train.tokens_per_batch // config.data.max_length
  make_mesh(config.mesh, rows // config.optimizer.accumulate)

  corpora = open_corpora(config.data)
  # Read only where the vocabulary, or the first parameters, are still to come from it.
  origin = (functools.cache(lambda: load_run(config.train.init_from)) if config.train.init_from
            else None)
  vocabulary = _vocabulary(workdir, config, corpora, origin)
  encoded = encode_corpora(config.data, corpora, vocabulary, config.train.tokens_per_batch,
                           config.seed)
  fingerprints = {'vocabulary': vocabulary.fingerprint, **corpora.fingerprints()}
  model = Transformer(config.model, vocabulary.size)
  _describe(workdir, config, model, vocabulary, fingerprints, encoded.counts)

  sources, references = (list(side) for side in zip(*corpora.valid[:], strict=True))
  # Greedy, because it is to be quick; `eval.py` searches as `config.decode` says.
  translate = Translator(model, vocabulary, dataclasses.replace(config.decode, beam_size=1),
                         config.data.max_length)

  def score(params) -> float:
    translations = [each.text for each in translate(params, sources)]
    return corpus_bleu(translations, [references], config.decode.bleu_tokenize).score

  outcome = train(config, model, encoded.batches, encoded.valid_batches, score, workdir,
                  origin and (lambda: origin().params))
  if outcome.resumed_from == outcome.step:
    logging.info('the run is done: step %d of %d%s', outcome.step, config.train.steps,
                 ', out of patience' if outcome.out_of_patience else '')
  if outcome.best_step is not None:
    logging.info('best validation BLEU %.2f at step %d', outcome.best_bleu, outcome.best_step)
  logging.info('score it with: python eval.py --workdir=%s', workdir)


def _check_workdir(workdir: Path, config: Config):
  """Refuses a directory that holds another run, or anything else."""
  command_line.check_folder('workdir', workdir)
  old = run_directory.read_config(workdir)
  if old is not None:
    run_directory.check_same_run(workdir, flatten(Config.from_dict(old).to_dict()),
                                 flatten(config.to_dict()))
  elif workdir.exists() and any(workdir.iterdir()):
    raise UserError(f'{workdir} is not empty and holds no run; choose another --workdir')


def _vocabulary(workdir: Path, config: Config, corpora,
                origin: Callable[[], Run] | None) -> Vocabulary:
  """The run's own vocabulary, or that of the run to start from, or a new one."""
  path = workdir / run_directory.VOCABULARY
  if path.exists():
    return Vocabulary.load(path)
  if origin is None:
    logging.info('training a vocabulary of %d pieces', config.data.vocabulary_size)
    return Vocabulary.train(corpora.training_text(), config.data.vocabulary_size)
  origin = origin()
  if origin.vocabulary.size != config.data.vocabulary_size:
    raise UserError(f'a run takes its vocabulary from train.init_from; set '
                    f'--config.data.vocabulary_size={origin.vocabulary.size}; '
                    f'got {config.data.vocabulary_size}')
  if _shapes(origin.model) != _shapes(Transformer(config.model, origin.vocabulary.size)):
    raise UserError(f'config.model must have the shape of the run in train.init_from, '
                    f'{origin.config.model}; got {config.model}')
  return origin.vocabulary


def _describe(workdir: Path, config: Config, model: Transformer, vocabulary: Vocabulary,
              fingerprints, counts):
  """Writes what makes the directory a run; on resuming, checks that the data is the same."""
  resumed = (workdir / run_directory.RUN).exists()
  if resumed:
    run_directory.check_same_data(workdir, fingerprints)
  run_directory.write_json(workdir / run_directory.CONFIG, config.to_dict())
  if not (workdir / run_directory.VOCABULARY).exists():
    vocabulary.save(workdir / run_directory.VOCABULARY)
  if resumed:
    run_directory.add_session(workdir)
  else:
    parameters = sum(leaf.size for leaf in jax.tree.leaves(_shapes(model)))
    run_directory.write_json(workdir / run_directory.RUN,
                             run_directory.describe(fingerprints, counts, parameters))


def _shapes(model: Transformer):
  """The shapes and types of a model's parameters."""
  return jax.eval_shape(lambda: init_params(model, 0))


if __name__ == '__main__':
  command_line.run(main)
