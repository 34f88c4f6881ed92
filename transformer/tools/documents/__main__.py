"""Translates and scores documents, whose lines are joined as far as they fit into the model.

  python -m transformer.tools.documents --workdir=RUN                               # its test split
  python -m transformer.tools.documents --workdir=RUN --source=FILE --reference=FILE
  python -m transformer.tools.documents --workdir=RUN --source=FILE --output=FILE2  # a line each
  python -m transformer.tools.documents --workdir=RUN --lines=1    # joined once translated

A blank line ends a document, whose translation is one line, scored against the joined lines of the
references. Results lie beside those of eval.py, as those of the text NAME.documents.
"""

import time

from absl import flags, logging

from transformer.commands import shared_flags
from transformer.commands.request import Request
from transformer.data.config import DataConfig
from transformer.data.text.text_files import is_blank
from transformer.errors import UserError, refuse
from transformer.evaluation.scores import load_metric
from transformer.evaluation.texts import Text
from transformer.runs.run_directory import read_settings
from transformer.system import command_line
from transformer.tools.documents import separator
from transformer.tools.documents.parts import cut, joined

_LINES = flags.DEFINE_integer(
  'lines', 0, 'The most lines that are translated together; 0: as many as fit.'
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
  'dtype',
  'bleu_tokenize',
  'sample',
  'temperature',
  'top_k',
  'top_p',
  'seed',
  'examples',
  'metric',
)


def main(_):
  """Wires flags to a run, translates, puts documents together, and scores them."""
  request = Request(**shared_flags.given(*_FLAGS))
  refuse(
    (request.checkpoint == 'all', '--checkpoint=all is for eval.py; name one'),
    (
      len(request.split) > 1,
      f'--split={",".join(request.split)} names several texts; name one',
    ),
    (_LINES.value < 0, f'--lines must be at least 0; got {_LINES.value}'),
  )
  config = read_settings(request.workdir)
  decoding = request.decoding(config)
  data = config.data
  lines = _read(request, data)
  custom_metrics = list(map(load_metric, request.metric))
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.commands.translating import write_and_score
  from transformer.decoding.translator import Translation
  from transformer.evaluation import metrics, results

  if lines.references:
    metrics.check_tokenizer(decoding.bleu_tokenize)
  run = request.load()
  parts, documents = cut(
    lines.sources, run.vocabulary.source, data.max_length, _LINES.value
  )
  logging.info('%s: %d documents in %d parts', lines.name, len(documents), len(parts))
  spaces = [separator(data.source_language), separator(data.target_language)]
  lines = joined(lines, parts, *spaces)
  text = joined(lines, documents, *spaces)._replace(name=f'{lines.name}.documents')
  result = None
  if text.references:
    content = results.facts(text, run.members, decoding, lines=str(_LINES.value))
    result = results.place(request.results_folder, content)
  started = time.perf_counter()
  answers = run.answers(lines.sources, decoding)
  seconds = time.perf_counter() - started
  joined_answers = []
  for document in documents:
    of_document = [answers[part] for part in document]
    joined_answers.append(
      Translation(
        spaces[1].join(part.text for part in of_document),
        sum(part.score for part in of_document),
        any(part.cut for part in of_document),
        (),
      )
    )
  write_and_score(request, result, text, (joined_answers, seconds), custom_metrics)


def _read(request: Request, data: DataConfig) -> Text:
  """Reads the lines of a request; refuses those whose documents differ between languages."""
  lines = request.read_texts(data)[0]
  blank = [
    set(map(is_blank, side))
    for side in zip(lines.sources, *lines.references, strict=True)
  ]
  for number, sides in enumerate(blank, 1):
    if len(sides) > 1:
      raise UserError(
        f'line {number} of {lines.name} is blank in one language and not in '
        'another; a blank line must end a document in all'
      )
  if lines.references and {False} not in blank:
    raise UserError(f'there is nothing to score; all lines of {lines.name} are blank')
  if lines.references and {True} not in blank:
    logging.warning('%s has no blank line, and is scored as one document', lines.name)
  return lines


start = command_line.starter(main)  # `attention-documents` calls it.

if __name__ == '__main__':
  start()
