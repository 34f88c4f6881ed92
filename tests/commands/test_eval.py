"""A mistake in scoring ends in one line and status 1, with nothing half written."""

import shutil

import pytest


@pytest.mark.parametrize(('flags', 'facts'), [
    (['--workdir='], ['--workdir=DIR is needed']),
    (['--workdir=/nowhere'], ['/nowhere holds no run', 'config.json']),
    (['--reference=x'], ['--reference needs --source']),
    (['--split=test', '--source=x'], ['--split and --source exclude each other']),
    (['--average=0'], ['--average must be at least 1; got 0']),
    (['--average=5'], ['there are 2 checkpoints up to step 2, fewer than the 5', 'train.keep']),
    (['--checkpoint=9'], ['best, latest or one of the steps 1, 2', "got '9'"]),
    (['--checkpoint=bset'], ['best, latest or one of the steps 1, 2', "got 'bset'"]),
    (['--beam_size=0'], ['decode.beam_size must be at least 1; got 0']),
    (['--beam_size=1.5'], ['--beam_size=1.5', 'int']),
    (['--alpha=-1'], ['decode.alpha must be at least 0 and finite; got -1.0']),
    (['--source=/nowhere/x'], ['/nowhere/x', 'there is no folder /nowhere']),
    (['--split=nothing'], ['nothing.en', 'holds']),
    (['--data_dir=/nowhere'], ['/nowhere/test.en', 'there is no folder /nowhere']),
    (['--source={folder}/test.en', '--reference={folder}/unequal.de'],
     ['test.en has 2 lines', 'unequal.de has 3']),
    (['--source={folder}/latin.de'], ['latin.de must be UTF-8; line 2 is not']),
    (['--source={folder}/empty', '--reference={folder}/empty'], ['nothing to score', 'empty is']),
    (['--source={folder}/test.en', '--output={folder}'], ['--output must name a file']),
    (['--source={folder}/test.en', '--output={folder}/test.en/x'],
     ['--output needs a directory', 'test.en is a file']),
    (['--nonsense=3'], ["Unknown command line flag 'nonsense'"]),
    (['stray'], ["unexpected argument 'stray'"]),
])
def test_a_mistake_in_scoring_is_one_line(evaluate, folder, trained, flags, facts):
  flags = [flag.format(folder=folder) for flag in flags]
  message = evaluate.refuses(f'--workdir={trained}', *flags)
  for fact in facts:
    assert fact in message, message
  assert not (trained / 'eval').exists()


def test_a_run_without_a_checkpoint_cannot_be_scored(evaluate, trained, tmp_path):
  shutil.copytree(trained, tmp_path / 'run', ignore=shutil.ignore_patterns('checkpoints'))
  assert 'no checkpoint; train the run first' in evaluate.refuses(f'--workdir={tmp_path}/run')
  (tmp_path / 'run' / 'checkpoints').mkdir()
  assert 'no checkpoint; train the run first' in evaluate.refuses(f'--workdir={tmp_path}/run')
