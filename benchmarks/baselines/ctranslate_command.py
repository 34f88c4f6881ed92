"""Translates a file with CTranslate2 in one process, like its users' scripts.

  python ctranslate_command.py MODEL SOURCE_VOCABULARY TARGET_VOCABULARY COMPUTE_TYPE BEAM ALPHA \
      < SOURCE > OUTPUT
"""

import os
import sys

import ctranslate2
import sentencepiece


def main(model, source_vocabulary, target_vocabulary, compute_type, beam_size, alpha):
  """Reads standard input, writes standard output."""
  source, target = (
    sentencepiece.SentencePieceProcessor(model_file=model)
    for model in (source_vocabulary, target_vocabulary)
  )
  # One batch per core, as its documentation recommends for large texts; it sorts by length.
  translator = ctranslate2.Translator(
    model,
    compute_type=compute_type,
    intra_threads=1,
    inter_threads=len(os.sched_getaffinity(0)),
  )
  sys.stdin.reconfigure(encoding='utf-8', newline='\n')
  sentences = source.encode([line.rstrip('\n') for line in sys.stdin], out_type=str)
  results = translator.translate_batch(
    sentences,
    beam_size=int(beam_size),
    length_penalty=float(alpha),
    max_batch_size=1024,
    batch_type='tokens',
  )
  sys.stdout.writelines(
    target.decode(result.hypotheses[0]) + '\n' for result in results
  )


if __name__ == '__main__':
  main(*sys.argv[1:])
