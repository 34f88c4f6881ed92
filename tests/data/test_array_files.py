"""A file that is written in pieces is an ordinary `.npy` file, and is read in pieces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.array_files import StoredSentences, TokenFile, appending
from transformer.data.encoding import Sentences


@given(st.lists(st.lists(st.lists(st.integers(0, 60_000), max_size=5), max_size=7), max_size=4),
       st.sampled_from([np.uint16, np.int32]))
@settings(max_examples=40, deadline=None)
def test_sentences_come_back_from_a_file(tmp_path_factory, parts, dtype):
  path = tmp_path_factory.mktemp('files') / 'tokens.npy'
  parts = [Sentences.join(part, dtype) for part in parts]
  with appending(path, np.dtype(dtype)) as append:
    for part in parts:
      append(part.tokens)
  whole = Sentences.concatenate(parts)
  found = np.load(path, allow_pickle=False)
  np.testing.assert_array_equal(found, whole.tokens)
  assert not parts or found.dtype == dtype
  stored = StoredSentences.end_to_end(TokenFile(path), whole.lengths)
  assert [stored[i].tolist() for i in range(len(stored))] == [
      whole[i].tolist() for i in range(len(whole))]
  backwards = np.arange(len(whole))[::-1]
  np.testing.assert_array_equal(stored.take(backwards), whole.take(backwards))


def test_tokens_of_another_type_are_refused(tmp_path):
  with pytest.raises(ValueError, match=r'tokens\.npy must hold uint16; got int32'), \
      appending(tmp_path / 'tokens.npy', np.dtype(np.uint16)) as append:
    append(np.zeros(3, np.int32))
