r"""Translates with words that must appear or come first, and without words that must not.

  python -m transformer.tools.constrain --workdir=RUN --source=FILE --require=FILE2   # in line n
  python -m transformer.tools.constrain --workdir=RUN --source=FILE --avoid=FILE3     # in no line
  python -m transformer.tools.constrain --workdir=RUN --source=FILE --prefix=FILE4    # begins
  python -m transformer.tools.constrain --workdir=RUN --require=FILE2                 # a split

Translations go to standard output or to --output, and are scored if there are references; results
lie beside those of eval.py. Flags that both commands have mean the same.
"""

from absl import flags

from transformer.commands import shared_flags
from transformer.commands.request import Request, check_output
from transformer.data.text.text_files import STANDARD_INPUT, is_blank, read_lines
from transformer.errors import refuse
from transformer.evaluation import texts
from transformer.system import command_line

_REQUIRE = flags.DEFINE_string(
  'require',
  None,
  'A file with a line for each of the source: words '
  'and phrases, with tabs between them, that its translation must '
  'contain.',
)
_AVOID = flags.DEFINE_string(
  'avoid',
  None,
  'A file of words and phrases, one a line, that must not appear in translations.',
)
_PREFIX = flags.DEFINE_string(
  'prefix',
  None,
  'A file with what each translation begins with; an empty line is free.',
)
_FLAGS = shared_flags.define_request(
  'workdir',
  'split',
  'data_dir',
  'source',
  'reference',
  'output',
  'results',
  'ensemble',
  'batch_size',
  'nbest',
  'sample',
  'seed',
)


def main(_):
  """Wires flags to a run, and translates."""
  request = _request()
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.commands.translating import translate_text
  from transformer.tools.constrain.words import Words, warn_of_lacking

  run = request.load()
  decoding = request.decoding(run.config)
  refuse(
    (
      _REQUIRE.value and decoding.sample,
      '--require needs a search, which keeps places '
      'for the words; leave out --sample, or give --nosample',
    )
  )
  text = request.read_texts(run.config.data)[0]
  required = (
    texts.read_beside('require', _REQUIRE.value, text.sources) if _REQUIRE.value else []
  )
  prefixes = (
    texts.read_beside('prefix', _PREFIX.value, text.sources) if _PREFIX.value else []
  )
  written = run.vocabulary.target.written
  phrases = [
    [written(phrase.strip()) for phrase in line.split('\t')] for line in required
  ]
  lines = read_lines(_AVOID.value) if _AVOID.value else []
  avoided = [line.strip() for line in lines if not is_blank(line)]
  refuse(
    (
      _AVOID.value and not avoided,
      f'--avoid must name a file with words or phrases, one a line; {_AVOID.value} has none',
    )
  )
  constraint = Words(run.vocabulary.target, phrases, avoided, prefixes)
  answers, _ = translate_text(
    request,
    run,
    text,
    decoding,
    constraint=constraint,
    prefix=prefixes,
    require=['\t'.join(filter(None, line)) for line in phrases],
    avoid=avoided,
  )
  warn_of_lacking([[line for line, _ in answer.nbest] for answer in answers], phrases)


def _request() -> Request:
  """Returns the request; refuses flags that exclude or need each other."""
  request = Request(**shared_flags.given(*_FLAGS))
  refuse(
    (
      not (_REQUIRE.value or _AVOID.value or _PREFIX.value),
      '--require=FILE, --avoid=FILE or --prefix=FILE is needed; eval.py translates without them',
    ),
    (
      STANDARD_INPUT in (_REQUIRE.value, _AVOID.value, _PREFIX.value),
      'only --source can be standard input; name files by --require, --avoid and --prefix',
    ),
    (
      len(request.split) > 1,
      f'--require, --avoid and --prefix are for one text; got --split='
      f'{",".join(request.split)}; name one split',
    ),
  )
  check_output(
    request.output, [_REQUIRE.value, _AVOID.value, _PREFIX.value], request.workdir
  )
  return request


start = command_line.starter(main)  # `attention-constrain` calls it.

if __name__ == '__main__':
  start()
