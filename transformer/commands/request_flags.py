"""The flags of commands that translate, defined once; a command takes those that it needs."""

from collections.abc import Sequence
from typing import Any

from absl import flags

from transformer.commands import shared_flags
from transformer.evaluation.request import Request

# As in `shared_flags`: --help lists these flags under the module that asks for them.
flags.disclaim_key_flags()

_STRING, _LIST, _STRINGS = flags.DEFINE_string, flags.DEFINE_list, flags.DEFINE_multi_string
_INTEGER, _FLOAT, _BOOL = flags.DEFINE_integer, flags.DEFINE_float, flags.DEFINE_bool
# Each flag by its name: what defines it, and its help text.
_FLAGS = {
    'workdir': (_STRING, 'The directory of the run.'),
    'split': (_LIST, 'test, valid, train, or splits or prefixes of the data; default: test.'),
    'source': (_STRING, 'A file to translate, or - for standard input.'),
    'reference': (_STRINGS, 'A file of translations to score against; may be given repeatedly.'),
    'output': (_STRING, 'Where translations go, or - for standard output.'),
    'results': (_STRING, 'The folder where scores go; default: eval/ in the run.'),
    'batch_size': (_INTEGER, 'Sentences that are translated together; default: as the run.'),
    'dtype': (_STRING, 'Type of activations: trained, float32 or bfloat16; default: as the run.'),
    'bleu_tokenize': (_STRING, 'sacreBLEU\'s tokenizer, such as zh; default: as the run.'),
    'sample': (_BOOL, 'Draw a translation of each sentence, or the best of --beam_size=W.'),
    'temperature': (_FLOAT, 'Divides log-probabilities before a token is drawn; default: 1.'),
    'top_k': (_INTEGER, 'Draw from the k likeliest tokens; 0, the default, is all.'),
    'top_p': (_FLOAT, 'Draw from the fewest tokens whose probabilities reach this; default: 1.'),
    'seed': (_INTEGER, 'The seed of the draws; default: as the run.'),
    'examples': (_INTEGER, 'Print this many translations, taken evenly, beside their references.'),
    'nbest': (_INTEGER, 'Give this many of each sentence as lines of number ||| text ||| score.'),
    'metric': (_STRINGS, 'A metric of your own, as MODULE:FUNCTION; may be given repeatedly.'),
    'ter': (_BOOL, 'Whether to compute TER; default: if no line has more than 100 words.'),
    'protocols': (_BOOL, 'Print BLEU by other protocols, too.'),
    'score': (_BOOL, 'Translate nothing: give log-probability and tokens of each reference line.'),
    'tokens': (_BOOL, 'With --score: a JSON object for each line, with its pieces.'),
    'prefix': (_STRING, 'A file with what each translation begins with; an empty line is free.'),
    'ensemble': (_LIST, 'Runs whose probabilities are averaged with those of --workdir; a step in '
                 '--checkpoint is of --workdir alone.'),
    'data_dir': (_STRING, 'Where the data lies now, if it has moved.'),
}


def define(*names: str, checkpoints: str = 'best, latest, or a step.') -> list[flags.FlagHolder]:
  """Defines flags by name, and those of a checkpoint and a search, which every request has.

  Args:
    *names: fields of `Request`.
    checkpoints: the help text of `--checkpoint`.
  """
  chosen = [kind(name, None, text) for name, (kind, text) in _FLAGS.items() if name in names]
  return [*chosen, *shared_flags.define_checkpoint(checkpoints), *shared_flags.define_search()]


def define_all() -> list[flags.FlagHolder]:
  """Defines every flag that a `Request` has a field for."""
  return define(*_FLAGS, checkpoints='best, latest, a step, or all, which scores one after the '
                                     'other.')


def request(holders: Sequence[flags.FlagHolder], **more: Any) -> Request:
  """Returns the request of flags from `define`, and of values of other fields."""
  return Request(**shared_flags.given(*holders), **more)
