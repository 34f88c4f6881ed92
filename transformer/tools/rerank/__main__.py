"""Minimum Bayes risk: chooses from each n-best list the candidate that is most like all of it.

  python eval.py --workdir=RUN --sample --beam_size=32 --nbest=32 --output=FILE   # 32 samples
  python -m transformer.tools.rerank --nbest=FILE --output=FILE2
  python -m transformer.tools.rerank --nbest=FILE --result=RUN/eval/test.step600.samples32….json

Line n of the output is the choice for sentence n. --result names the scores that eval.py wrote for
the same lists. The choices are scored against the same references, and get a result beside that
one, which python -m transformer.tools.compare holds against others.
"""

import sys
import time

from absl import flags

from transformer import files
from transformer.commands.request import check_output
from transformer.errors import UserError, refuse
from transformer.system import command_line
from transformer.system.machine import usable_cores

_NBEST = flags.DEFINE_string('nbest', None, 'The file that eval.py --nbest=N --output=FILE wrote.')
_OUTPUT = flags.DEFINE_string(
  'output', None, 'Where the choices go; - is standard output, and the default without --result.'
)
_UTILITY = flags.DEFINE_enum(
  'utility', 'chrF2++', ['chrF2++', 'BLEU'], 'What candidates are compared by.'
)
_BLEU_TOKENIZE = flags.DEFINE_string(
  'bleu_tokenize',
  None,
  "sacreBLEU's tokenizer, such as ja-mecab or zh; default: that of --result, or 13a.",
)
_RESULT = flags.DEFINE_string(
  'result', None, 'The JSON file of the scores that eval.py wrote for these translations.'
)
_METRIC = flags.DEFINE_multi_string(
  'metric',
  [],
  'A metric of your own for --result, as MODULE:FUNCTION; may be given more than once.',
)


def main(_):
  """Chooses, writes the choices, and scores them if there are references."""
  refuse(
    (not _NBEST.value, '--nbest=FILE is needed, the n-best lists that eval.py wrote'),
    (
      _METRIC.value and not _RESULT.value,
      '--metric compares translations with references; give --result=FILE',
    ),
    (_BLEU_TOKENIZE.value and _RESULT.value, '--bleu_tokenize is that of --result; leave it out'),
  )
  check_output(_OUTPUT.value, [_NBEST.value])
  # Imported only now, so that --help and a mistake answer at once.
  from transformer.commands.text_lines import write_lines
  from transformer.evaluation import metrics, results, scores
  from transformer.tools.rerank.minimum_risk import choose, read_lists

  lists = read_lists(files.as_path(_NBEST.value))
  result, tokenize = None, _BLEU_TOKENIZE.value or '13a'
  own_metrics = list(map(scores.load_metric, _METRIC.value))
  if _RESULT.value:
    result = results.read(files.as_path(_RESULT.value))
    sentences, tokenize = result.read_sentences(), result.decoding['bleu_tokenize']
    if len(sentences) != len(lists):
      raise UserError(
        f'--nbest and --result must be of one text; {_NBEST.value} has {len(lists)} '
        f'sentences, {result.path} has {len(sentences)}'
      )
  metrics.check_tokenizer(tokenize)
  started = time.perf_counter()
  choices = choose(
    [[text for text, _ in candidates] for candidates in lists],
    _UTILITY.value,
    tokenize,
    usable_cores(),
  )
  seconds = time.perf_counter() - started
  if _OUTPUT.value or not result:
    write_lines(choices, _OUTPUT.value or '-')
  if result:
    _score(result, sentences, lists, choices, seconds, own_metrics)


def _score(result, sentences, lists, choices, seconds: float, own_metrics):
  """Prints the scores of the choices, and writes them beside the result of the lists."""
  from transformer.decoding.translator import Translation
  from transformer.evaluation import report, results
  from transformer.evaluation.texts import Text

  content = result.content
  references = zip(*(sentence['references'] for sentence in sentences), strict=True)
  text = Text(
    content['text'], [sentence['source'] for sentence in sentences], list(map(list, references))
  )
  answers = [
    Translation(line, dict(reversed(candidates)).get(line, 0.0), False, ())
    for line, candidates in zip(choices, lists, strict=True)
  ]
  stages = report.evaluate(
    text,
    answers,
    content['seconds'] + seconds,
    content['decode']['bleu_tokenize'],
    own_metrics,
  )
  more = content['more'] | {'mbr': f'{_UTILITY.value}.{max(map(len, lists))}'}
  place = results.place(result.path.parent, {**content, 'command': sys.argv[1:], 'more': more})
  report.report(
    place,
    (
      (of_text | {'cut_sources': content['cut_sources']}, of_sentences)
      for of_text, of_sentences in stages
    ),
    sys.stderr if _OUTPUT.value == '-' else sys.stdout,
  )


start = command_line.starter(main)  # `attention-rerank` calls it.

if __name__ == '__main__':
  start()
