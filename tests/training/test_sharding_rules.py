"""The rules of the mesh know each matrix and each table of every model."""

import jax
import pytest

from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.training.config import MeshConfig
from transformer.training.mesh import make_mesh, state_shardings
from transformer.training.step import init_params

SHAPE = {'num_layers': 1, 'model_dim': 8, 'ff_dim': 12, 'num_heads': 4}


@pytest.mark.parametrize('changes', [
    {'attention_bias': 'all'}, {'share_embeddings': False, 'tie_output': False},
    {'activation': 'swiglu', 'rms_norm': True, 'positions': 'rotary', 'query_key_norm': True},
    {'share_embeddings': False, 'tie_output': True}], ids=str)
def test_every_matrix_and_table_is_split_along_both_axes(changes):
  model = Transformer(ModelConfig(**SHAPE, **changes), 20, 20)
  shapes = jax.eval_shape(lambda: init_params(model, 0))
  mesh = make_mesh(MeshConfig(data=1, fsdp=2, tensor=2), 2, jax.devices()[:4])
  specs = {jax.tree_util.keystr(path, simple=True, separator='.'): sharding.spec
           for path, sharding in jax.tree_util.tree_leaves_with_path(state_shardings(mesh, shapes))}
  sizes = {jax.tree_util.keystr(path, simple=True, separator='.'): leaf.shape
           for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)}
  matrices = [name for name, shape in sizes.items() if len(shape) > 1 and 'bias' not in name]
  assert len(matrices) > 10
  for name in matrices:
    assert {'fsdp', 'tensor'} <= set(specs[name]), name
