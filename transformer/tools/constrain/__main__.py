r"""Lexically constrained translation: required words, forbidden words and prefixes.

  python -m transformer.tools.constrain --workdir=RUN --source=FILE \
      --require=FILE2   # per-line required phrases
  python -m transformer.tools.constrain --workdir=RUN --source=FILE \
      --avoid=FILE3     # phrases forbidden everywhere
  python -m transformer.tools.constrain --workdir=RUN --source=FILE \
      --prefix=FILE4    # per-line prefixes
  python -m transformer.tools.constrain --workdir=RUN \
      --require=FILE2   # a dataset split instead of a file

Translations go to standard output or to --output, and are scored if there are references. Results
are stored in the same folder as results of eval.py. Flags of eval.py have the same meaning here.
"""

from absl import flags

from transformer.cli import shared_flags
from transformer.cli.request import Request, check_output
from transformer.data.text.text_files import STANDARD_INPUT, is_blank, read_lines
from transformer.errors import UserError
from transformer.evaluation import eval_sets
from transformer.system import command_line

_REQUIRE = flags.DEFINE_string(
  'require',
  None,
  'A file with one line per source line: tab-separated words and phrases that its translation '
  'must contain.',
)
_AVOID = flags.DEFINE_string(
  'avoid',
  None,
  'A file of words and phrases, one per line, that must not appear in translations.',
)
_PREFIX = flags.DEFINE_string(
  'prefix',
  None,
  'A file with a prefix for each translation; an empty line means none.',
)
_FLAGS = shared_flags.define(
  'workdir',
  'split',
  'data_dir',
  'source',
  'reference',
  'output',
  'results',
  'ensemble',
  'checkpoint',
  'average',
  'batch_size',
  'beam_size',
  'alpha',
  'nbest',
  'search',
  'sample',
  'seed',
)


def main(_):
  """Reads the flags, loads a run, and translates."""
  request = Request.from_flags(_FLAGS)
  _check(request)
  # Import JAX only now, so that --help and invalid flags respond immediately.
  from transformer.cli.translating import translate_and_score
  from transformer.tools.constrain.lexical_constraint import (
    LexicalConstraint,
    warn_about_missing_phrases,
  )

  run = request.load()
  decoding = request.decode_options(run.config)
  eval_set = request.read_eval_sets(run.config.data)[0]
  round_trip = run.vocabulary.target.round_trip
  phrases = []
  for line in _aligned_lines(_REQUIRE, eval_set):
    phrases.append([round_trip(phrase.strip()) for phrase in line.split('\t')])
  prefixes = _aligned_lines(_PREFIX, eval_set)
  lines = read_lines(_AVOID.value) if _AVOID.value else []
  avoided = [line.strip() for line in lines if not is_blank(line)]
  if _AVOID.value and not avoided:
    raise UserError(
      f'--avoid must name a file with words or phrases, one per line; {_AVOID.value} has none'
    )
  translations, _ = translate_and_score(
    request,
    run,
    eval_set,
    decoding,
    constraint=LexicalConstraint(run.vocabulary.target, phrases, avoided, prefixes),
    prefix=prefixes,
    require=['\t'.join(filter(None, line)) for line in phrases],
    avoid=avoided,
  )
  warn_about_missing_phrases(
    [[line for line, _ in translation.nbest] for translation in translations], phrases
  )


def _aligned_lines(flag: flags.FlagHolder, eval_set: eval_sets.EvalSet) -> list[str]:
  """Returns the lines of a flag's file, one per source line; [] without the flag."""
  return (
    eval_sets.read_aligned_lines(flag.name, flag.value, eval_set.sources)
    if flag.value
    else []
  )


def _check(request: Request):
  """Raises `UserError` if flags are mutually exclusive, or one requires another."""
  paths = [_REQUIRE.value, _AVOID.value, _PREFIX.value]
  if not any(paths):
    raise UserError(
      'no constraint; pass --require=FILE, --avoid=FILE or --prefix=FILE, or translate with '
      'eval.py'
    )
  if STANDARD_INPUT in paths:
    raise UserError(
      'only --source can be standard input; name files by --require, --avoid and --prefix'
    )
  if len(request.split) > 1:
    raise UserError(
      '--require, --avoid and --prefix are for one split; got '
      f'--split={",".join(request.split)}; pass one split'
    )
  check_output(request.output, paths, request.workdir)


start = command_line.entry_point(main)  # `attention-constrain` calls it.

if __name__ == '__main__':
  start()
