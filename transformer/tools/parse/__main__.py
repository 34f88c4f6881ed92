"""Parses sentences with a run that learnt from trees, or scores the run on a treebank.

  python -m transformer.tools.parse --workdir=RUN                       # F1 on its test split
  python -m transformer.tools.parse --workdir=RUN --split=dev --output=dev.parsed
  python -m transformer.tools.parse --workdir=RUN --source=words.txt    # a sentence a line
  python -m transformer.tools.parse --workdir=RUN --source=words.txt --reference=FILE.mrg

Words are separated by spaces, as in the treebank. Trees are written with their words, in Penn
Treebank brackets, one a line. Scores are printed, and written to RUN/eval/ or to --results=FOLDER,
with those of each sentence. Flags that eval.py has too mean the same.
"""

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

from transformer.commands import shared_flags
from transformer.commands.request import Request, chosen_splits
from transformer.data.text.sources import open_corpus
from transformer.data.text.text_files import STANDARD_INPUT, read_lines
from transformer.errors import UserError, refuse
from transformer.evaluation.texts import Text
from transformer.system import command_line
from transformer.tools.parse.treebank import bracketed, read_trees, split_words

_FLAGS = shared_flags.define_request(
  'workdir',
  'split',
  'data_dir',
  'source',
  'reference',
  'output',
  'results',
  'ensemble',
  'nbest',
  'examples',
)


def main(_):
  """Wires flags to a run."""
  request = _request()
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.evaluation import results

  run = request.load()
  if not run.config.data.source.startswith(f'{__package__}.'):
    raise UserError(
      f'{request.workdir} must have learnt from trees, as configs/parsing.py does; '
      f'it has data.source={run.config.data.source}'
    )
  decoding = request.decoding(run.config)
  if request.source:
    texts = [_read_file(request.source, *request.reference)]
  else:
    texts = list(_read_splits(request, run.config.data))
  for text in texts:
    result = None
    if text.references:
      content = results.facts(text, run.members, decoding)
      result = results.place(request.results_folder, content)
    started = time.perf_counter()
    answers = run.answers(text.sources, decoding)
    seconds = time.perf_counter() - started
    try:
      _write(request, text, answers)
    finally:  # Trees that do not fit onto a disk can still be scored.
      if text.references:
        _score(request, result, text, answers, seconds)


def _request() -> Request:
  """Returns the request; refuses flags that exclude or need each other."""
  request = Request(**shared_flags.given(*_FLAGS))
  refuse(
    (
      request.checkpoint == 'all',
      '--checkpoint=all is for eval.py: its --metric='
      'transformer.tools.parse.scores:f1 gives the F1 of every checkpoint',
    ),
    (len(request.reference) > 1, '--reference names one file of trees'),
  )
  return request


def _write(request, text, answers):
  """Writes the trees of a text, if they are asked for."""
  from transformer.commands.text_lines import as_lines, write_lines
  from transformer.decoding.sentences import distinct
  from transformer.tools.parse.scores import mended

  output = request.output or (None if text.references else '-')
  if not output:
    return
  trees = []
  for source, answer in zip(text.sources, answers, strict=True):
    nbest = [
      (bracketed(mended(source, line).tree), score) for line, score in answer.nbest
    ]
    best = bracketed(mended(source, answer.text).tree)
    trees.append(answer._replace(text=best, nbest=distinct(nbest)))
  write_lines(as_lines(trees, request.nbest), output)


def _score(request, result, text, answers, seconds):
  """Reports the scores of a text, and prints examples."""
  from transformer.evaluation import report
  from transformer.tools.parse import scores

  report.report(
    result, scores.evaluate(text, answers, seconds), request.people, scores.more_lines
  )
  count = min(request.examples, len(answers))
  for number in range(count):
    index = number * len(answers) // count
    tree = bracketed(scores.mended(text.sources[index], answers[index].text).tree)
    print(
      f'reference\n{text.references[0][index]}\n\nparse\n{tree}\n', file=request.people
    )


def _read_splits(request, data) -> Iterator[Text]:
  """Yields the sentences of the splits with their trees as references."""
  data = dataclasses.replace(data, dir=request.data_dir or data.dir)
  for split in chosen_splits(data, request.split, request.output):
    corpus = open_corpus(data, split, dir_flag='--data_dir')
    sources = [source for source, _ in corpus[:]]
    # The name differs from that of eval.py's results, which have other scores.
    yield Text(f'{split.replace("/", "_")}.trees', sources, [corpus.gold])


def _read_file(source: str, reference: str | None = None) -> Text:
  """Reads sentences, and the file of their trees if there is one."""
  sources = read_lines(source)
  name = 'stdin' if source == STANDARD_INPUT else Path(source).name
  references = []
  if reference:
    trees = read_trees(reference)
    if not trees or list(map(split_words, sources)) != [
      list(tree.words) for tree in trees
    ]:
      raise UserError(
        f'each line of {source} must have the words of a tree of {reference}, in '
        f'order; they have {len(sources)} lines and {len(trees)} trees'
      )
    references = [list(map(bracketed, trees))]
  text = Text(name, sources, references)
  return text._replace(name=f'{name}.trees.{text.digest[:8]}')


start = command_line.starter(main)  # `attention-parse` calls it.

if __name__ == '__main__':
  start()
