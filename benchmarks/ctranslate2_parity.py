"""Compares CTranslate2's translations of an exported run with this project's.

  python benchmarks/ctranslate2_parity.py --run=DIR --source=FILE --reference=FILE [--average=K]

Both translate a file, greedily and with a beam and α = 0, for which both define the same search.
Each sentence has the same length limit in both. Packages: benchmarks/requirements.txt.
"""

import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from absl import flags, logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import ctranslate2

from transformer.data.text.text_files import read_lines
from transformer.decoding.config import resolve_decode_options
from transformer.decoding.translator import Translator
from transformer.evaluation.metrics import corpus_score
from transformer.runs.loading import load_run
from transformer.system import command_line
from transformer.tools.convert.ctranslate2_format import write_model
from transformer.tools.convert.vocabulary_pieces import pieces_of

_RUN = flags.DEFINE_string(
  'run', None, 'The directory of a run of train.py.', required=True
)
_CHECKPOINT = flags.DEFINE_string('checkpoint', 'best', 'best, latest, or a step.')
_AVERAGE = flags.DEFINE_integer(
  'average', 1, "Number of the run's checkpoints to average."
)
_SOURCE = flags.DEFINE_string('source', None, 'A file to translate.', required=True)
_REFERENCE = flags.DEFINE_string(
  'reference', None, 'A file of reference translations.', required=True
)
_QUANTIZATIONS = flags.DEFINE_multi_string(
  'quantization', ['float32', 'int8'], 'Type of the stored matrices.'
)
_BEAMS = flags.DEFINE_multi_integer('beam_size', [1, 4], 'Beams; 1 is greedy.')


def translate(folder: str, run, sources: list[str], beam_size: int) -> list[str]:
  """Returns CTranslate2's translations; sources are truncated to the run's `max_length`."""
  translator = ctranslate2.Translator(
    folder, inter_threads=1, intra_threads=len(os.sched_getaffinity(0))
  )
  config, found = run.config, [''] * len(sources)
  by_length = defaultdict(list)
  for index, line in enumerate(sources):
    ids = run.vocabulary.source.encode(line)[: config.data.max_length - 1]
    if line.strip():
      by_length[len(ids)].append(
        (index, [run.vocabulary.source.piece(token) for token in ids])
      )
  target = run.vocabulary.target
  numbers = {target.piece(token): token for token in range(target.size)}
  for length, chosen in by_length.items():
    results = translator.translate_batch(
      [pieces for _, pieces in chosen],
      beam_size=beam_size,
      length_penalty=0,
      min_decoding_length=0,
      max_decoding_length=length + 1 + config.decode.max_extra_length,
    )
    for (index, _), result in zip(chosen, results, strict=True):
      found[index] = target.decode([numbers[piece] for piece in result.hypotheses[0]])
  return found


def main(_):
  """Prints a table."""
  logging.set_verbosity(logging.WARNING)
  run = load_run(_RUN.value, _CHECKPOINT.value, _AVERAGE.value)
  config, vocabulary = run.config, run.vocabulary
  sources, reference = read_lines(_SOURCE.value), read_lines(_REFERENCE.value)
  pieces = pieces_of(vocabulary)

  def bleu(translations):
    return corpus_score('BLEU', translations, [reference], config.decode.bleu_tokenize)

  print(
    '| search | matrices | the same translation | BLEU here | BLEU of CTranslate2 |\n'
    '| --- | --- | --- | --- | --- |'
  )
  for beam_size in _BEAMS.value:
    decode = resolve_decode_options(
      config.decode, config.seed, beam_size=beam_size, alpha=0.0
    )
    translator = Translator((run.model,), vocabulary, config.data.max_length)
    answers = translator([run.params], sources, decode)
    ours = [answer.text for answer in answers]
    for quantization in _QUANTIZATIONS.value:
      with tempfile.TemporaryDirectory() as folder:
        write_model(
          folder,
          config.model,
          run.params,
          pieces,
          config.data.max_length + config.decode.max_extra_length,
          quantization,
        )
        theirs = translate(folder, run, sources, beam_size)
      same = sum(one == other for one, other in zip(ours, theirs, strict=True))
      search = 'greedy' if beam_size == 1 else f'beam {beam_size}, α = 0'
      print(
        f'| {search} | {quantization} | {same:,} of {len(ours):,} ({same / len(ours):.1%}) | '
        f'{bleu(ours):.2f} | {bleu(theirs):.2f} |',
        flush=True,
      )


if __name__ == '__main__':
  command_line.run(main, use_compilation_cache=False)
