"""A type checker reads a user's script against the public functions."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip('ty', reason='tests/requirements.txt has it')
ROOT = pathlib.Path(__file__).parents[1]
SCRIPT = """
from typing import assert_type
import jax, numpy as np, transformer
from transformer.model.config import ModelConfig
from transformer.ops.attention import dot_product_attention

run = transformer.load('runs/mine', average=5)
run.translate(['A line.'], nbest=2, alpha=0.6)
assert_type(run.loss(run.params, run.batch(['A line.'], ['Eine.'])), jax.Array)
assert_type(run.config.decode.beam_size, int)
assert_type(dot_product_attention(*np.ones((3, 5, 2, 8), np.float32)), jax.Array)
transformer.load('runs/mine', averages=5)  # wrong
transformer.lod('runs/mine')  # wrong
run.translat(['A line.'])  # wrong
run.translate(['A line.'], nbest='2')  # wrong
run.score(['A line.'])  # wrong
run.config.decode.beam  # wrong
ModelConfig(num_layers='2')  # wrong
ModelConfig(layers=2)  # wrong
"""


def test_right_calls_have_their_types_and_wrong_ones_are_reported(tmp_path):
  script = tmp_path / 'script.py'
  script.write_text(SCRIPT, 'utf-8')
  done = subprocess.run(
    [
      sys.executable,
      '-m',
      'ty',
      'check',
      '--output-format=concise',
      f'--python={sys.prefix}',
      f'--project={ROOT}',
      script,
    ],
    capture_output=True,
    text=True,
    check=False,
  )
  lines = SCRIPT.splitlines()
  reported = {
    lines[int(line.split(':')[1]) - 1]
    for line in done.stdout.splitlines()
    if line.startswith(str(script))
  }
  assert reported == {line for line in lines if line.endswith('# wrong')}, (
    done.stdout + done.stderr
  )
