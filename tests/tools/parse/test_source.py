"""A treebank is a source of words and linearized trees, with a fingerprint of its lines."""

import pickle

import pytest

from transformer.data.config import DataConfig
from transformer.data.text.sources import open_corpus
from transformer.errors import UserError
from transformer.tools.parse import source

TREES = """\
( (S (NP-SBJ (DT The) (NN cat))
     (VP (VBZ sleeps)) (. .)) )
( (S (-NONE- *)) )
(ROOT (NP (NN Introduction)))
"""


def corpus(folder, text=TREES, name='Trees'):
  (folder / 'train.mrg').write_text(text, 'utf-8')
  return open_corpus(DataConfig(f'{source.__name__}:{name}', dir=str(folder)), 'train')


def test_pairs_are_words_and_linearized_trees(tmp_path):
  trees = corpus(tmp_path)
  pairs = [
    ('The cat sleeps .', '(S (NP XX XX )NP (VP XX )VP XX )S'),
    ('Introduction', '(NP XX )NP'),
  ]
  assert trees[:] == pairs and trees[1:] == pairs[1:] and len(trees) == 2
  assert trees.gold == [
    '(S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .))',
    '(NP (NN Introduction))',
  ]
  assert trees.name == f'{tmp_path}/train.mrg' and trees.folder == tmp_path
  assert trees.notes == (
    f'{tmp_path}/train.mrg: trees that hold only traces were left out: 1',
  )
  assert pickle.loads(pickle.dumps(trees))[:] == pairs
  with_words = corpus(tmp_path, name='TreesWithWords')
  assert with_words[:] == [
    ('The cat sleeps .', '(S (NP The cat )NP (VP sleeps )VP . )S'),
    ('Introduction', '(NP Introduction )NP'),
  ]
  assert with_words.gold == trees.gold and with_words.fingerprint != trees.fingerprint
  in_order = corpus(tmp_path, name='TreesInOrder')
  assert in_order[:] == [
    ('The cat sleeps .', 'The NP( cat )NP S( sleeps VP( )VP . )S'),
    ('Introduction', 'Introduction NP( )NP'),
  ]
  assert in_order.gold == trees.gold and in_order.fingerprint != with_words.fingerprint
  # The fingerprint is of the file.
  prints = [
    corpus(tmp_path, text).fingerprint
    for text in (TREES, TREES, TREES.replace('\n', '\r\n'), TREES.replace('DT', 'NN'))
  ]
  assert prints[0] == prints[1] == prints[2] != prints[3]


def test_a_file_without_trees_is_rejected(tmp_path):
  for text, fact in (
    ('( (S (-NONE- *)) )', 'must hold at least one tree with words'),
    ('(S (NN a)', 'line 1 begins a tree whose brackets are not all closed'),
  ):
    with pytest.raises(UserError, match=fact) as caught:
      corpus(tmp_path, text)
    assert f'{tmp_path}/train.mrg' in str(caught.value)
  with pytest.raises(UserError, match=r'train\.mrg cannot be opened'):
    open_corpus(DataConfig(f'{source.__name__}:Trees', dir=f'{tmp_path}/x'), 'train')
