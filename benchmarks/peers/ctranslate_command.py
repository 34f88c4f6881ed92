"""Translates a file with CTranslate2, start to end: what its users' scripts do.

  python ctranslate_command.py MODEL VOCABULARY COMPUTE_TYPE BEAM ALPHA < SOURCE > OUTPUT
"""

import os
import sys

import ctranslate2
import sentencepiece


def main(model, vocabulary, compute_type, beam_size, alpha):
  """Reads standard input, writes standard output."""
  pieces = sentencepiece.SentencePieceProcessor(model_file=vocabulary)
  translator = ctranslate2.Translator(model, compute_type=compute_type, inter_threads=1,
                                      intra_threads=len(os.sched_getaffinity(0)))
  sentences = pieces.encode(sys.stdin.read().splitlines(), out_type=str)
  # Of the batch sizes tried, the fastest; it sorts by length itself.
  results = translator.translate_batch(
      sentences, beam_size=int(beam_size), length_penalty=float(alpha), max_batch_size=4096,
      batch_type='tokens')
  sys.stdout.writelines(pieces.decode(each.hypotheses[0]) + '\n' for each in results)


if __name__ == '__main__':
  main(*sys.argv[1:])
