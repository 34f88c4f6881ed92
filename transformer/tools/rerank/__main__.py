"""Minimum Bayes risk: chooses from each n-best list the candidate that is most like all of it.

  python eval.py --workdir=RUN --sample --beam_size=32 --nbest=32 --output=FILE   # 32 samples
  python -m transformer.tools.rerank --nbest=FILE --output=FILE2
  python -m transformer.tools.rerank --nbest=FILE --result=RUN/eval/test.step600.samples32….json

Line n of the output is the choice for sentence n. --result names the scores that eval.py wrote for
the same lists. The choices are scored against the same references, and get a result beside that
one, which python -m transformer.tools.compare holds against others. Of samples, a text counts as
often as it was drawn. Of the n-best list of a search, each text counts once. N candidates of a
sentence take up to N² comparisons.
"""

import sys
import time
from pathlib import Path

from absl import flags

from transformer.commands import shared_flags
from transformer.errors import UserError
from transformer.system import command_line, outputs
from transformer.system.machine import usable_cores

_NBEST = flags.DEFINE_string('nbest', None, 'The file that eval.py --nbest=N --output=FILE wrote.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where the choices go; - is standard output, and the '
                              'default without --result.')
_UTILITY = flags.DEFINE_enum('utility', 'chrF2++', ['chrF2++', 'BLEU'], 'What candidates are '
                             'compared by.')
_BLEU_TOKENIZE = flags.DEFINE_string('bleu_tokenize', None, 'sacreBLEU\'s tokenizer, such as '
                                     'ja-mecab or zh; default: that of --result, or 13a.')
_RESULT = flags.DEFINE_string('result', None, 'The JSON file of the scores that eval.py wrote for '
                              'these translations.')
_METRIC = flags.DEFINE_multi_string('metric', [], 'A metric of your own for --result, as '
                                    'MODULE:FUNCTION; may be given more than once.')



def main(_):
  """Chooses, writes the choices, and scores them if there are references."""
  shared_flags.check_named(_NBEST, _OUTPUT, _RESULT)
  if not _NBEST.value:
    raise UserError('--nbest=FILE is needed, the n-best lists that eval.py wrote')
  if _METRIC.value and not _RESULT.value:
    raise UserError('--metric compares translations with references; give --result=FILE')
  if _BLEU_TOKENIZE.value and _RESULT.value:
    raise UserError('--bleu_tokenize is that of --result; leave it out')
  path = Path(_NBEST.value).expanduser()
  if _OUTPUT.value and _OUTPUT.value != '-':
    outputs.check_file('output', output := Path(_OUTPUT.value).expanduser())
    outputs.check_not_read('output', output, [path])
  # Imported only now, so that --help and a mistake answer at once.
  from transformer.decoding.lines import write_lines
  from transformer.evaluation import metrics
  from transformer.evaluation.own_metrics import load_metric
  from transformer.tools.rerank import result_of_choices
  from transformer.tools.rerank.minimum_risk import choose
  from transformer.tools.rerank.nbest_file import read_lists
  lists = read_lists(path)
  scored = result_of_choices.read(Path(_RESULT.value).expanduser()) if _RESULT.value else None
  if scored and len(scored.sentences) != len(lists):
    raise UserError(f'--nbest and --result must be of one text; {path} has {len(lists)} sentences, '
                    f'{scored.result.path} has {len(scored.sentences)}')
  own_metrics = list(map(load_metric, _METRIC.value))
  tokenize = scored.tokenize if scored else _BLEU_TOKENIZE.value or '13a'
  if scored or _UTILITY.value == 'BLEU':
    metrics.check_tokenizer(tokenize)
  started = time.perf_counter()
  choices = choose([[text for text, _ in candidates] for candidates in lists], _UTILITY.value,
                   tokenize, usable_cores())
  seconds = time.perf_counter() - started
  if _OUTPUT.value or not scored:
    write_lines(choices, _OUTPUT.value or '-')
  if scored:
    people = sys.stderr if _OUTPUT.value == '-' else sys.stdout
    chosen = [(text, dict(reversed(candidates)).get(text, 0.0))
              for text, candidates in zip(choices, lists, strict=True)]
    result_of_choices.report(scored, chosen, seconds,
                             f'{_UTILITY.value}.{max(map(len, lists))}', own_metrics, people)


def start():
  """Runs `main` with the flags of the command line; `attention-rerank` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
