"""`benchmarks/decode.py` measures the installed toolkits and reports the skipped ones."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.long
def test_missing_toolkits_are_skipped_with_a_line_each(trained, folder, tmp_path):
  bare = tmp_path / 'python'  # Without the packages that are installed.
  bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding='utf-8')
  bare.chmod(0o755)
  done = subprocess.run(
    [
      sys.executable,
      'benchmarks/decode.py',
      f'--run={trained}',
      f'--source={folder}/test.en',
      '--turns=1',
      '--runs=1',
      f'--baseline_python={bare}',
    ],
    cwd=ROOT,
    text=True,
    capture_output=True,
  )
  assert done.returncode == 0, done.stderr
  rows = [line for line in done.stdout.splitlines() if line.endswith(' of 2 |')]
  assert rows[0].startswith('| this project | ') and rows[0].endswith(' | 2 of 2 |')
  left_out = [line for line in done.stdout.splitlines() if 'was left out' in line]
  for line, name, package in zip(
    left_out,
    ('transformers `generate`', 'JoeyNMT `translate`'),
    ('sentencepiece', 'numpy'),
    strict=True,
  ):
    assert line.startswith(f'{name} was left out: ')
    assert line.endswith(f"No module named '{package}'")
