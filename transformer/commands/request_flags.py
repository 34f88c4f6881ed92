"""The flags of commands that translate, defined once; a command takes those that it needs."""

from collections.abc import Sequence
from typing import Any

from absl import flags

from transformer.commands import shared_flags
from transformer.evaluation.request import Request

# As in `shared_flags`: --help lists these flags under the module that asks for them.
flags.disclaim_key_flags()

# What defines a flag: its type, and its help text.
_STRING, _LIST, _STRINGS = flags.DEFINE_string, flags.DEFINE_list, flags.DEFINE_multi_string
_INTEGER, _FLOAT, _BOOL = flags.DEFINE_integer, flags.DEFINE_float, flags.DEFINE_bool
_FLAGS = {
    'workdir': (_STRING, 'The directory of the run.'),
    'split': (_LIST, 'test, valid, train, or a split or prefix of the data by its own name; or '
              'several, with commas between them. Without --source, the default is test.'),
    'source': (_STRING, 'A file to translate, or - for standard input.'),
    'reference': (_STRINGS, 'A file of translations to score against; may be given more than '
                  'once.'),
    'output': (_STRING, 'Where translations go, or - for standard output.'),
    'results': (_STRING, 'The folder where scores go; default: eval/ in the directory of the '
                'run.'),
    'batch_size': (_INTEGER, 'Sentences that are translated together; default: the run\'s '
                   'config.'),
    'dtype': (_STRING, 'Type of activations in a search: trained, float32 or bfloat16, which is '
              'faster on some processors; default: the run\'s config.'),
    'bleu_tokenize': (_STRING, 'sacreBLEU\'s tokenizer, such as ja-mecab or zh; default: the '
                      'run\'s config.'),
    'sample': (_BOOL, 'Draw translations rather than search: one of each sentence, or the best by '
               'score of --beam_size=W.'),
    'temperature': (_FLOAT, 'Divides log-probabilities before a token is drawn; default: 1.'),
    'top_k': (_INTEGER, 'Draw from the k likeliest tokens, 0 is all, the default.'),
    'top_p': (_FLOAT, 'Draw from the fewest tokens whose probabilities reach this together, 1 is '
              'all, the default.'),
    'seed': (_INTEGER, 'The seed of the draws, which also depend on the sentence and its line; '
             'default: the run\'s config.'),
    'examples': (_INTEGER, 'Print this many translations beside their references, taken evenly '
                 'from the text.'),
    'nbest': (_INTEGER, 'Give this many translations of each sentence, with their scores, as '
              'lines of number ||| text ||| score.'),
    'metric': (_STRINGS, 'A metric of your own, as MODULE:FUNCTION; may be given more than once; '
               'see docs/scoring.md.'),
    'ter': (_BOOL, 'Compute TER even of lines with more than 100 words, each of which takes '
            'seconds; --noter leaves it out; default: if there are none.'),
    'protocols': (_BOOL, 'Print BLEU by the other usual protocols, its precisions, and the cost '
                  'of training, too; the results have them in any case.'),
    'score': (_BOOL, 'Translate nothing, but give the log-probability of each line of '
              '--reference, and how many tokens it has.'),
    'tokens': (_BOOL, 'With --score: a JSON object for each line, with the log-probability of '
               'each of its pieces.'),
    'prefix': (_STRING, 'A file with a line for each of the source: what its translation begins '
               'with. An empty line leaves it free.'),
    'prefix_column': (_BOOL, 'Each line of --source has, after a tab, the beginning of its '
                      'translation.'),
    'ensemble': (_LIST, 'Runs whose probabilities are averaged with those of --workdir. '
                 '--average and --checkpoint=latest apply to all runs; a step applies to '
                 '--workdir alone, and the others use their best.'),
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
  """Returns the request of the flags that were given.

  Args:
    holders: from `define`.
    **more: values of other fields.

  Raises:
    UserError: flags exclude or need each other.
  """
  return Request(**shared_flags.given(*holders), **more)
