"""Flags that several commands share, defined once; each command defines those that it needs.

`cli.request` validates their values, and `decoding.config` the ranges of search settings.
"""

import functools

from absl import flags

from transformer.cli import flag_parsers
from transformer.config_fields import check_range

# absl then attributes the flags to the module that calls `define`, so its --help lists them.
flags.disclaim_key_flags()


_STRING = flags.DEFINE_string
_STRINGS = flags.DEFINE_multi_string
_LIST = flags.DEFINE_list
_INTEGER = flags.DEFINE_integer
_FLOAT = flags.DEFINE_float
_BOOL = flags.DEFINE_bool
_PLUGIN = functools.partial(flags.DEFINE, flag_parsers.OneOrSeveral())
# The flags of a request by name: the function that defines each flag, and its help text.
_FLAGS = {
  'workdir': (_STRING, 'The directory of the run.'),
  'split': (
    _LIST,
    'Comma-separated splits: test, valid, train, TFDS splits or file prefixes (default: test).',
  ),
  'source': (_STRING, 'A file to translate, or - for standard input.'),
  'reference': (
    _STRINGS,
    'A file of reference translations; repeat the flag for several references.',
  ),
  'output': (_STRING, 'The file for translations, or - for standard output.'),
  'results': (_STRING, 'The folder for scores (default: eval/ in the run).'),
  'batch_size': (
    _INTEGER,
    "Sentences per batch (default: the run's setting).",
  ),
  'dtype': (
    _STRING,
    "Type of activations: trained, float32 or bfloat16 (default: the run's setting).",
  ),
  'bleu_tokenize': (
    _STRING,
    "sacreBLEU's tokenizer, such as zh (default: the run's setting).",
  ),
  'search': (
    _PLUGIN,
    "The search: MODULE:FUNCTION, or `default`, greedy or beam (default: the run's setting).",
  ),
  'sample': (
    _BOOL,
    'Sample instead of searching; with --beam_size=W, draw W samples and return the best one.',
  ),
  'temperature': (
    _FLOAT,
    'With --sample: the temperature, which divides log-probabilities (default: 1).',
  ),
  'top_k': (
    _INTEGER,
    'With --sample: sample from the k likeliest tokens (default: 0, from all).',
  ),
  'top_p': (
    _FLOAT,
    'With --sample: sample from the fewest tokens whose total probability reaches this '
    '(default: 1).',
  ),
  'seed': (_INTEGER, "The seed of samples (default: the run's setting)."),
  'examples': (
    _INTEGER,
    'Print N translations, evenly spaced, next to their references.',
  ),
  'nbest': (
    _INTEGER,
    'Write the N best translations of each sentence as lines of number ||| text ||| score.',
  ),
  'metric': (
    _STRINGS,
    'A custom metric, as MODULE:FUNCTION; repeat the flag for several metrics.',
  ),
  'ensemble': (
    _LIST,
    'Runs to ensemble with --workdir, by averaging probabilities; a step in --checkpoint '
    'applies only to --workdir.',
  ),
  'data_dir': (_STRING, 'The folder of the dataset, if it has moved.'),
  'checkpoint': (
    _STRING,
    '`best`, `latest` or a step; eval.py also accepts `all`, to score every checkpoint.',
  ),
  'average': (
    _INTEGER,
    'Average the parameters of the last N checkpoints, up to --checkpoint.',
  ),
  'beam_size': (_INTEGER, "Beam size (default: the run's setting)."),
  'alpha': (_FLOAT, "Length penalty (default: the run's setting)."),
}
_DEFAULTS = {'checkpoint': 'best', 'average': 1}


def define(*names: str) -> list[flags.FlagHolder]:
  """Defines flags of a request by name; all flags if none is named."""
  holders = []
  for name in names or _FLAGS:
    kind, text = _FLAGS[name]
    holders.append(kind(name, _DEFAULTS.get(name), text))
  return holders


def explicit_values(*holders: flags.FlagHolder) -> dict:
  """Returns the values of the flags that were set, by name."""
  return {flag.name: flag.value for flag in holders if flag.value is not None}


@functools.cache
def define_config() -> flags.FlagHolder:
  """Defines `--config`, and a flag for each key of the config that `--config` names."""
  from ml_collections import config_flags  # Not every command has a config.

  flag_parsers.register()
  holder = config_flags.DEFINE_config_file(
    'config',
    None,
    'The config file, or the directory or config.json of a run for its settings. '
    '--config.GROUP.KEY=VALUE overrides a setting, such as --config.train.steps=100; '
    'transformer/config.py and transformer/*/config.py list all settings.',
  )
  flags.FLAGS[holder.name].parser = flag_parsers.ConfigFile()
  return holder


def check_at_least(least: int, *holders: flags.FlagHolder):
  """Raises `UserError` if the value of a flag is below `least`."""
  for flag in holders:
    check_range(f'--{flag.name}', flag.value, min=least)
