"""Parameters for another vocabulary give old pieces their old meaning."""

import chex
import numpy as np
import pytest

from transformer.model.vocabulary_rows import spelt_params

SHAPES = {
  'tied': ('target_embedding',),
  'separate': ('source_embedding', 'target_embedding'),
  'untied': ('source_embedding', 'target_embedding', 'output', 'output_bias'),
}
BARE = ('output', 'output_bias')  # Arrays; the others are modules.


@pytest.mark.parametrize('tables', SHAPES.values(), ids=SHAPES)
def test_rows_are_kept_moved_or_the_mean_of_those_that_spell_them(tables):
  rng = np.random.default_rng(0)
  params = {'decoder_0': {'kernel': rng.normal(size=(3, 5))}}
  for name in tables:
    table = rng.normal(size=(7, 3)[: 1 if name == 'output_bias' else 2]).astype(
      np.float32
    )
    params[name] = table if name in BARE else {'table': table}
  source, target = [[0], [6], [2, 5]], [[0], [1], [3], [4, 4, 1]]
  found = spelt_params(params, source, target)
  assert found.keys() == params.keys()
  chex.assert_trees_all_equal(found['decoder_0'], params['decoder_0'])
  for name in tables:
    old, new = (
      tree[name] if name in BARE else tree[name]['table'] for tree in (params, found)
    )
    pieces = source if name == 'source_embedding' else target
    assert new.dtype == old.dtype and new.shape == (len(pieces), *old.shape[1:])
    for row, ids in zip(new, pieces, strict=True):
      np.testing.assert_allclose(
        row,
        sum(old[token] for token in ids) / len(ids),
        rtol=1e-6 if len(ids) > 1 else 0,
      )
