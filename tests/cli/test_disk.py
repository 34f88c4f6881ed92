"""Full and read-only disks, and locked directories."""

import contextlib
import json
import os
import shutil
import socket
import subprocess

import pytest

from tests.robustness.kill import differences
from transformer.runs.lock import LOCK, run_lock

pytestmark = pytest.mark.long
STEPS = ('--config.train.steps=6', '--config.train.eval_every=3')


def check_intact(evaluate, workdir):
  """Checks that the best checkpoint is whole, and its weights can be used."""
  status, out, err = evaluate(f'--workdir={workdir}', '--source=-', '--beam_size=1')
  assert status == 0 and out == '', err


@pytest.fixture
def small_disk(tmp_path):
  """Yields a separate disk of 8 MB."""
  place = tmp_path / 'disk'
  place.mkdir()
  if (
    os.getuid()
    or subprocess.run(
      ['mount', '-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', place], capture_output=True
    ).returncode
  ):
    pytest.skip('mounting is not possible here')
  yield place
  subprocess.run(['umount', place], check=True)


def leave_free(disk, size):
  """Fills a disk, except for the given number of bytes."""
  with (disk / 'filler').open('wb', buffering=0) as file, contextlib.suppress(OSError):
    while file.write(bytes(4096)):
      pass
  os.truncate(disk / 'filler', max(0, (disk / 'filler').stat().st_size - size))


def test_a_full_disk_is_reported_in_one_line_and_the_run_can_be_resumed(
  train, evaluate, folder, trained, small_disk, tmp_path
):
  flags = f'--config={folder}/tiny.py', *STEPS
  shutil.copytree(trained, tmp_path / 'whole')
  status, _, err = train(*flags, f'--workdir={tmp_path}/whole')
  assert status == 0, err
  workdir = small_disk / 'run'
  shutil.copytree(trained, workdir)
  for size in (0, 4096, 12288, 20480, 40960, 81920, 163840):
    leave_free(small_disk, size)
    message = train.rejects(*flags, f'--workdir={workdir}')
    assert 'No space left on device' in message and str(workdir) in message, message
    assert not (workdir / LOCK).exists()
    check_intact(evaluate, workdir)
    for line in (workdir / 'metrics.jsonl').read_text('utf-8').splitlines():
      json.loads(line)
    (small_disk / 'filler').unlink()
  status, _, err = train(*flags, f'--workdir={workdir}')
  assert status == 0, err
  assert differences(tmp_path / 'whole', workdir) == []


def test_a_run_on_a_read_only_disk_can_be_read(
  train, evaluate, folder, trained, small_disk
):
  workdir = small_disk / 'run'
  shutil.copytree(trained, workdir)
  subprocess.run(['mount', '-o', 'remount,ro', small_disk], check=True)
  message = train.rejects(f'--config={folder}/tiny.py', f'--workdir={workdir}', *STEPS)
  assert message.startswith(f'--workdir needs a directory to write to; {workdir} is')
  check_intact(evaluate, workdir)


def test_a_locked_run_can_be_read_and_not_trained(
  train, evaluate, folder, trained, tmp_path
):
  workdir = tmp_path / 'run'
  shutil.copytree(trained, workdir)
  before = {
    path: path.stat().st_mtime_ns for path in workdir.rglob('*') if path.is_file()
  }
  with run_lock(workdir):
    message = train.rejects(
      f'--config={folder}/tiny.py', f'--workdir={workdir}', *STEPS
    )
    check_intact(evaluate, workdir)
  assert (
    f'{workdir} is in use by process {os.getpid()} on host {socket.gethostname()}'
    in message
  )
  assert {
    path: path.stat().st_mtime_ns for path in workdir.rglob('*') if path.is_file()
  } == before
  with run_lock(tmp_path / 'new'):  # The holder has written nothing yet.
    message = train.rejects(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/new')
    assert 'in use by process' in message
