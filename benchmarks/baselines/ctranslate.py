"""The same weights in CTranslate2."""

import os

import ctranslate2
from workload import Workload

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID


def make_decoding(work: Workload, folder: str, beam_size: int, compute_type: str):
  """Builds a search of all sentences in one batch; translations have the length of the sources.

  Args:
    work: the batch.
    folder: a model of `ctranslate2_format.write_model`.
    beam_size: 1 is greedy.
    compute_type: CTranslate2's, such as `float32` or `int8`.

  Returns:
    The function to time.

  Raises:
    ValueError: the processor does not support this type.
  """
  # CTranslate2 would silently use another type.
  supported = ctranslate2.get_supported_compute_types('cpu')
  if compute_type not in supported:
    raise ValueError(f'CTranslate2 has {sorted(supported)} on this processor')
  translator = ctranslate2.Translator(
    folder,
    compute_type=compute_type,
    inter_threads=1,
    intra_threads=len(os.sched_getaffinity(0)),
  )
  # It adds EOS itself.
  sentences = [[str(token) for token in row[:-1]] for row in work.sources()]

  def run():
    results = translator.translate_batch(
      sentences,
      beam_size=beam_size,
      length_penalty=0.6 if beam_size > 1 else 0.0,
      max_decoding_length=work.length,
      min_decoding_length=work.length,
    )
    words = [result.hypotheses[0] for result in results]
    return {
      'tokens': sum(map(len, words)),
      'words': [[int(word) for word in row] for row in words],
    }

  return run


def pieces_of_ids(vocabulary_size: int) -> list[str]:
  """Returns a vocabulary whose pieces are their ids, except the reserved tokens."""
  reserved = {PAD_ID: '<pad>', BOS_ID: '<s>', EOS_ID: '</s>', UNK_ID: '<unk>'}
  return [reserved.get(token, str(token)) for token in range(vocabulary_size)]
