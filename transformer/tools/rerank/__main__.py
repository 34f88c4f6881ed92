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

_NBEST = flags.DEFINE_string(
  'nbest', None, 'The file that eval.py --nbest=N --output=FILE wrote.'
)
_OUTPUT = flags.DEFINE_string(
  'output',
  None,
  'Where the choices go; - is standard output, and the default without --result.',
)
_RESULT = flags.DEFINE_string(
  'result',
  None,
  'The JSON file of the scores that eval.py wrote for these translations.',
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
  )
  check_output(_OUTPUT.value, [_NBEST.value])
  # Imported only now, so that --help and a mistake answer at once.
  from transformer.commands.text_lines import write_lines
  from transformer.evaluation import metrics, results, scores
  from transformer.tools.rerank.minimum_risk import choose, read_lists

  lists = read_lists(files.as_path(_NBEST.value))
  result = None
  custom_metrics = list(map(scores.load_metric, _METRIC.value))
  if _RESULT.value:
    result = results.read(files.as_path(_RESULT.value))
    sentences = result.read_sentences()
    metrics.check_tokenizer(result.decoding['bleu_tokenize'])
    if len(sentences) != len(lists):
      raise UserError(
        f'--nbest and --result must be of one text; {_NBEST.value} has {len(lists)} '
        f'sentences, {result.path} has {len(sentences)}'
      )
  started = time.perf_counter()
  texts = [[text for text, _ in candidates] for candidates in lists]
  choices = choose(texts, usable_cores())
  seconds = time.perf_counter() - started
  if _OUTPUT.value or not result:
    write_lines(choices, _OUTPUT.value or '-')
  if result:
    _score(result, sentences, lists, choices, seconds, custom_metrics)


def _score(result, sentences, lists, choices, seconds: float, custom_metrics):
  """Prints the scores of the choices, and writes them beside the result of the lists."""
  from transformer.decoding.translator import Translation
  from transformer.evaluation import report, results
  from transformer.evaluation.texts import Text

  content = result.content
  references = zip(*(sentence['references'] for sentence in sentences), strict=True)
  sources = [sentence['source'] for sentence in sentences]
  text = Text(content['text'], sources, list(map(list, references)))
  answers = []
  for line, candidates in zip(choices, lists, strict=True):
    score = next((score for candidate, score in candidates if candidate == line), 0.0)
    answers.append(Translation(line, score, False, ()))
  stages = report.evaluate(
    text,
    answers,
    content['seconds'] + seconds,
    content['decode']['bleu_tokenize'],
    custom_metrics,
  )
  more = content['more'] | {'mbr': f'chrF2++.{max(map(len, lists))}'}
  place = results.place(
    result.path.parent, {**content, 'command': sys.argv[1:], 'more': more}
  )
  cut = {'cut_sources': content['cut_sources']}
  kept = ((of_text | cut, of_sentences) for of_text, of_sentences in stages)
  report.report(place, kept, sys.stderr if _OUTPUT.value == '-' else sys.stdout)


start = command_line.starter(main)  # `attention-rerank` calls it.

if __name__ == '__main__':
  start()
