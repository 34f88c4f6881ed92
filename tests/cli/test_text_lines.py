"""Lines are answered in their order, each as soon as it can be."""

import dataclasses
import os
import types

import numpy as np
import pytest

from transformer.cli import text_lines
from transformer.config import Config
from transformer.decoding.config import DecodeOptions
from transformer.decoding.sentence_search import nbest_list
from transformer.decoding.translator import Translation
from transformer.ops.search import Hypotheses


def test_a_list_holds_each_text_once_with_its_best_score():
  texts = ['a b', 'a c', 'a b', 'a', 'a c', '']
  scores = np.array([[-1.0, -2.0, -2.5, -3.0, -4.0, -np.inf]])
  lengths = np.array([[1, 1, 1, 1, 1, 0]])
  found = Hypotheses(np.arange(6)[None, :, None], lengths, scores, scores)
  vocabulary = types.SimpleNamespace(decode=lambda tokens: texts[tokens[0]])
  search = DecodeOptions(beam_size=6, nbest=6)
  nbest = nbest_list(found, 0, search, vocabulary)
  samples = nbest_list(found, 0, dataclasses.replace(search, sample=True), vocabulary)
  assert [text for text, _ in samples] == texts[:5]
  answers = [
    Translation(*nbest[0], False, tuple(nbest)),
    Translation('', 0.0, False, (('', 0.0),)),
  ]
  assert text_lines.as_lines(answers, 5, 7) == [
    '7 ||| a b ||| -1.000000',
    '7 ||| a c ||| -2.000000',
    '7 ||| a ||| -3.000000',
    '8 |||  ||| 0.000000',
  ]


@pytest.mark.parametrize(('batch_size', 'together'), [(1, 1), (2, 32)])
def test_lines_of_a_pipe_keep_their_numbers(
  capfdbinary, tmp_path, batch_size, together
):
  def translations(lines, decoding, *, offset):
    assert len(lines) == min(together, 40 - offset)
    texts = [f'{line} {offset + place}' for place, line in enumerate(lines)]
    return [
      Translation(text, -1.0, False, ((text, -1.0), (text, -1.0))) for text in texts
    ]

  (tmp_path / 'in').write_text(
    ''.join(f'line {number}\n' for number in range(40)), 'utf-8'
  )
  run = types.SimpleNamespace(translations=translations, config=Config())
  before = os.dup(0)
  try:
    with open(tmp_path / 'in', 'rb') as file:
      os.dup2(file.fileno(), 0)
    text_lines.translate_stdin(
      run, DecodeOptions(beam_size=2, batch_size=batch_size, nbest=2)
    )
  finally:
    os.dup2(before, 0)
    os.close(before)
  assert capfdbinary.readouterr().out.decode().splitlines() == [
    f'{number} ||| line {number} {number} ||| -1.000000'
    for number in range(40)
    for _ in range(2)
  ]
