"""A run from a stranger is never executed; a malicious one is rejected in one line."""

import hashlib
import os
import pickle
import shutil

import pytest

from transformer.errors import UserError
from transformer.files import read_sealed, write_sealed
from transformer.runs.loading import load_run
from transformer.runs.run_directory import read_config_dict


class Mark:
  """An object whose unpickling creates a folder."""

  def __init__(self, path):
    self._path = path

  def __reduce__(self):
    return os.mkdir, (str(self._path),)


@pytest.fixture
def copied(trained, tmp_path):
  shutil.copytree(trained, tmp_path / 'run')
  return tmp_path / 'run'


@pytest.fixture
def planted(tmp_path):
  """Returns a pickle that creates a folder, and the folder."""
  mark = tmp_path / 'mark'
  content = pickle.dumps(Mark(mark))
  pickle.loads(content)
  mark.rmdir()  # The pickle works.
  return content, mark


def test_a_pickle_in_a_run_is_not_loaded(train, evaluate, folder, copied, planted):
  content, mark = planted
  for name in ('metrics.jsonl', 'run.json', 'vocabulary.model', 'config.json'):
    whole = (copied / name).read_bytes()
    (copied / name).write_bytes(content)
    if name == 'metrics.jsonl':  # Scoring does not read it.
      load_run(copied)
    else:
      # A finished run is not trained, and so its vocabulary is not read.
      commands = [evaluate] if name == 'vocabulary.model' else [evaluate, train]
      for command in commands:
        flags = [f'--config={folder}/tiny.py'] if command is train else []
        message = command.rejects(*flags, f'--workdir={copied}')
        assert name in message, message
    (copied / name).write_bytes(whole)
  (copied / 'vocabulary.model').write_bytes(content)
  about = read_sealed(copied / 'run.json', 'it')
  about['data']['vocabulary'] = hashlib.sha256(content).hexdigest()  # A valid digest.
  write_sealed(copied / 'run.json', about)
  assert 'is not a SentencePiece model' in evaluate.rejects(f'--workdir={copied}')
  assert not mark.exists()


@pytest.mark.parametrize('value', [10**9, 999])
def test_an_impossible_model_is_rejected(trained, copied, value):
  settings = read_config_dict(trained)
  for name in (
    'num_layers',
    'model_dim',
    'ff_dim',
    'num_heads',
    'max_positions',
    'key_dim',
    'value_dim',
  ):
    if (name, value) == ('num_layers', 999):
      continue  # It is rejected too, but takes half a minute.
    changed = {
      **settings,
      'model': {**settings['model'], 'positions': 'learned', name: value},
    }
    write_sealed(copied / 'config.json', changed)
    with pytest.raises(UserError) as error:
      load_run(copied)
    assert '\n' not in str(error.value), name


@pytest.mark.parametrize(
  ('changes', 'facts'),
  [
    (
      {'model__num_layers': 10**9},
      ['model.num_layers must be at least 1 and at most 1000'],
    ),
    (
      {'decode__beam_size': 10**30},
      ['decode.beam_size must be at least 1 and at most'],
    ),
    (
      {'model__num_layers': [[1]]},
      ['config.model.num_layers must be of type int; got [[1]]'],
    ),
    ({'data__train': {'a': 1}}, ['config.data.train must be a tuple']),
    ({'data__dir': '/etc', 'data__test': 'passwd'}, ['/etc/passwd.en']),
    ({'data__test': '../../../../../etc/passwd'}, ['etc/passwd.en']),
    ({'data__dir': '~no-such-user/x'}, ['~no-such-user/x/test.en']),
    ({'data__dir': 'a\0b'}, [r"data.dir must be text on one line; got 'a\x00b'"]),
    (
      {'data__source': 'tfds', 'data__tfds_name': 'huggingface:a/b'},
      ['a/b is not prepared in'],
    ),
    (
      {'data__source': 'tfds', 'data__tfds_name': '__import__("os").mkdir("mark")'},
      ['the name of a TFDS dataset must be like'],
    ),
    ({'decode__bleu_tokenize': 'os.system'}, ['decode.bleu_tokenize must be one of']),
  ],
)
def test_a_hostile_config_ends_in_one_line(
  evaluate, copied, change_settings, changes, facts
):
  change_settings(copied, **changes)
  message = evaluate.rejects(f'--workdir={copied}')
  for fact in facts:
    assert fact in message, message


def test_a_run_that_names_another_to_start_from_does_not_read_it(
  copied, change_settings
):
  change_settings(copied, train__init_from='/nowhere')
  assert load_run(copied).checkpoint_steps == [2]
