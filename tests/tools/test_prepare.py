"""`prepare` makes a set of TFDS ready, or ends in a line."""

import subprocess
import sys

NAME = 'wmt14_translate/de-en'


def test_the_command_prepares_a_set_and_ends_in_a_line(write_wmt14, tmp_path):
  def run(*args):
    return subprocess.run([sys.executable, '-W', 'error', '-m', 'transformer.tools.prepare',
                           *args], capture_output=True, text=True)

  write_wmt14(tmp_path, train=[(f'Satz {number}', f'sentence {number}') for number in range(37)],
              test=[('Satz', 'sentence')])
  done = run(f'--name={NAME}', f'--data_dir={tmp_path}')
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith(f'{NAME} lies in {tmp_path}') and 'train 37' in done.stdout
  failed = run('--name=wmt14_tranlate/de-en', f'--data_dir={tmp_path}')
  assert failed.returncode == 1 and failed.stdout == ''
  assert failed.stderr.startswith('error: --name must name a TFDS translation set; there is no')
  assert failed.stderr.count('\n') == 1
