"""The collectives that `hlo.read` finds in compiled programs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from tests.tiny_training import make_batch
from tests.training.test_step import make, without_dropout
from transformer.tools.tpu_costs import hlo
from transformer.training.config import MeshConfig
from transformer.training.mesh import batch_sharding, make_mesh, state_shardings

# The notations of the compiler for TPUs: a loop whose condition has its turns, a collective that
# runs during two fusions, groups by axes of a mesh, cycles, and pairs of -start and -done.
TPU = """HloModule jit_step, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[]{:T(128)} parameter(0)
  %b = f32[]{:T(128)} parameter(1)
  ROOT %add.1 = f32[]{:T(128)} add(%a, %b)
}

%condition (state: (s32[], f32[8])) -> pred[] {
  %constant.6 = s32[]{:T(128)} constant(6)
  %state = (s32[]{:T(128)}, f32[8]{0:T(128)}) parameter(0)
  %number = s32[]{:T(128)} get-tuple-element(%state), index=0
  ROOT %lt = pred[]{:T(512)} compare(%number, %constant.6), direction=LT
}

%body (state.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %state.1 = (s32[]{:T(128)}, f32[8]{0:T(128)}) parameter(0)
  %fusion.2 = f32[8]{0:T(128)} fusion(%state.1), kind=kLoop, calls=%sum, backend_config={"window_config":{"estimated_cycles":"50"}}
  %all-reduce.1 = (f32[8]{0:T(128)S(1)}, bf16[2,3]{1,0:T(8,128)(2,1)}, /*index=2*/f32[]{:T(128)}) all-reduce(%fusion.2), channel_id=1, replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}, to_apply=%sum, metadata={op_name="jit(step)/while/sum"}
  ROOT %tuple.1 = (s32[]{:T(128)}, f32[8]{0:T(128)}) tuple(%state.1)
}

%link (p: bf16[16]) -> bf16[64] {
  %p = bf16[16]{0:T(128)} parameter(0)
  ROOT %all-gather.1 = bf16[64]{0:T(128)} all-gather(%p), channel_id=2, replica_groups=[2,4]<=[8], dimensions={0}, frontend_attributes={chain_id="3"}
}

%link.1 (p.1: bf16[16]) -> bf16[64] {
  %p.1 = bf16[16]{0:T(128)} parameter(0)
  ROOT %all-gather.2 = bf16[64]{0:T(128)} all-gather(%p.1), channel_id=2, replica_groups=[2,4]<=[8], dimensions={0}, frontend_attributes={chain_id="3"}
}

ENTRY %main (x: f32[8], y: bf16[16]) -> f32[8] {
  %x = f32[8]{0:T(128)} parameter(0)
  %y = bf16[16]{0:T(128)} parameter(1)
  %fusion.7 = bf16[64]{0:T(128)} fusion(%y), kind=kCustom, calls=%link, backend_config={"window_config":{"estimated_cycles":"1000"}}
  %fusion.8 = bf16[64]{0:T(128)} fusion(%y), kind=kCustom, calls=%link.1
  %reduce-scatter.1 = f32[4]{0:T(128)} reduce-scatter(%x), channel_id=4, replica_groups={{0,1},{2,3}}, dimensions={0}, to_apply=%sum
  %permute-start = (f32[4]{0:T(128)}, f32[4]{0:T(128)}, u32[]{:S(2)}) collective-permute-start(%reduce-scatter.1), channel_id=5, source_target_pairs={{0,1},{1,0}}
  %permute-done = f32[4]{0:T(128)} collective-permute-done(%permute-start)
  %tuple.3 = (s32[]{:T(128)}, f32[8]{0:T(128)}) tuple(%x)
  %while.1 = (s32[]{:T(128)}, f32[8]{0:T(128)}) while(%tuple.3), condition=%condition, body=%body
  ROOT %result = f32[8]{0:T(128)} get-tuple-element(%while.1), index=1
}
"""  # noqa: E501


def test_the_text_of_a_tpus_compiler():
  program = hlo.read(TPU, 8)
  found = {each.kind: (each.count, each.size, each.group) for each in program.collectives}
  assert len(program.collectives) == 4
  assert found == {'all-reduce': (6, 8 * 4 + 6 * 2 + 4, 4), 'all-gather': (1, 64 * 2, 4),
                   'reduce-scatter': (1, 2 * 4 * 4, 2), 'collective-permute': (1, 4 * 4, 8)}
  assert program.cycles == 1000 + 6 * 50
  assert program.unknown_loops == 0
  reduced = next(each for each in program.collectives if each.kind == 'all-reduce')
  assert reduced.source == 'jit(step)/while/sum'
  assert reduced.shape == '(f32[8], bf16[2,3], f32[])'


@pytest.mark.parametrize(('said', 'else_'), [
    ('direction=LT', 'direction=NE'),
    ('  ROOT %lt', '  %constant.7 = s32[]{:T(128)} constant(7)\n  ROOT %lt')])
def test_a_loop_of_unknown_turns_is_counted_once_and_reported(said, else_):
  program = hlo.read(TPU.replace(said, else_), 8)
  assert program.unknown_loops == 1
  assert program.cycles == 1000 + 50


def test_a_loop_turns_as_often_as_the_compiler_says():
  known = 'body=%body, backend_config={"known_trip_count":{"n":"7"}}'
  program = hlo.read(TPU.replace('direction=LT', 'direction=NE').replace('body=%body', known), 8)
  assert program.unknown_loops == 0
  assert program.cycles == 1000 + 7 * 50


@pytest.mark.parametrize(('kind', 'sent'), [
    ('all-reduce', 3 * 80 * 2 * 3 / 4), ('all-gather', 3 * 80 * 3 / 4),
    ('reduce-scatter', 3 * 80 * 3 / 4), ('all-to-all', 3 * 80 * 3 / 4),
    ('collective-permute', 3 * 80)])
def test_what_a_device_sends(kind, sent):
  assert hlo.Collective(kind, 3, 80, 4, '', '').sent == sent


@pytest.mark.parametrize(('kind', 'shape', 'size'), [
    ('all-reduce', '(f32[8]{0:T(128)}, bf16[2,3]{1,0:T(8,128)(2,1)})', 8 * 4 + 6 * 2),
    ('all-gather', '((f32[2]{0:T(128)}, bf16[3]{0}), (f32[8]{0:T(128)}, bf16[12]{0}))', 32 + 24),
    ('reduce-scatter', '((f32[8]{0:T(128)}), f32[2]{0:T(128)})', 2 * 4 * 4),
    ('all-to-all', '((f32[8]{0:T(128)}), f32[4,2]{1,0:T(8,128)})', 32),
    ('collective-permute', '(f32[4]{0}, f32[4]{0}, u32[]{:S(2)}, u32[]{:S(2)})', 16)])
def test_an_asynchronous_collective_has_the_size_of_its_result(kind, shape, size):
  text = f"""HloModule jit_step

ENTRY %main (x: f32[8]) -> f32[8] {{
  %start = {shape} {kind}-start(%x), channel_id=1, replica_groups=[2,4]<=[8], dimensions={{0}}
  ROOT %done = f32[8]{{0:T(128)}} {kind}-done(%start)
}}
"""
  each, = hlo.read(text, 8).collectives
  assert (each.kind, each.size, each.group) == (kind, size, 4)


LOCAL = {
    'all-reduce': (lambda x: jax.lax.psum(x, 'a'), 5 * 7 * 4),
    'all-gather': (lambda x: jax.lax.all_gather(x, 'a', tiled=True), 4 * 5 * 7 * 4),
    'reduce-scatter': (lambda x: jax.lax.psum_scatter(x, 'a', tiled=True), 20 * 7 * 4),
    'all-to-all': (lambda x: jax.lax.all_to_all(x, 'a', 0, 0, tiled=True), 20 * 7 * 4),
    'collective-permute': (
        lambda x: jax.lax.ppermute(x, 'a', [(i, (i + 1) % 4) for i in range(4)]), 5 * 7 * 4)}


def compiled(function, mesh, shape):
  """Returns the program of a function on each device's array of this shape."""
  program = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=PartitionSpec(),
                                  out_specs=PartitionSpec(), check_vma=False))
  return hlo.read(program.lower(jnp.zeros(shape)).compile().as_text(), mesh.size)


@pytest.mark.parametrize('kind', hlo.KINDS)
def test_collectives_of_this_machines_own_compiler(kind):
  function, size = LOCAL[kind]
  rows = 20 if kind in ('reduce-scatter', 'all-to-all') else 5
  program = compiled(function, Mesh(np.array(jax.devices()), 'a'), (rows, 7))
  assert {each.kind for each in program.collectives} == {kind}
  assert sum(each.size * each.count for each in program.collectives) == size
  assert {each.group for each in program.collectives} == {4}


def test_collectives_in_loops_and_in_groups_of_devices():
  def turn(x, _):
    return jax.lax.scan(lambda x, _: (jax.lax.psum(x, 'b') / 2, None), x, length=3)[0], None

  mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ('a', 'b'))
  program = compiled(lambda x: jax.lax.scan(turn, x, length=5)[0], mesh, (5, 7))
  each, = program.collectives
  assert (each.kind, each.count, each.size, each.group) == ('all-reduce', 15, 140, 2)
  assert program.unknown_loops == 0


@functools.cache
def update_on(sizes):
  """Returns bytes sent in an update, by kind, and bytes of all parameters and of the split ones."""
  mesh = make_mesh(MeshConfig(*sizes), rows=4)
  step, state = make(without_dropout(), mesh=mesh)
  shardings = state_shardings(mesh, state)
  text = jax.jit(step, in_shardings=(shardings, batch_sharding(mesh)),
                 out_shardings=(shardings, None)).lower(state, make_batch(0)).compile().as_text()
  split = jax.tree.map(lambda leaf, where: leaf.nbytes * ('fsdp' in where.spec), state.params,
                       shardings.params)
  by_kind = {kind: [] for kind in hlo.KINDS}
  for each in hlo.read(text, 4).collectives:
    by_kind[each.kind] += [each.size] * each.count
  return by_kind, jax.tree.map(lambda leaf: leaf.nbytes, state.params), split


@pytest.mark.long
def test_with_split_rows_an_update_sends_the_gradient_and_nothing_else():
  sent, params, _ = update_on((4, 1, 1))
  gradient = sum(jax.tree.leaves(params))
  # The gradient of the shared table has two parts, from the embedding and from the output.
  table = params['target_embedding']['table']
  assert gradient <= sum(sent['all-reduce']) <= gradient + 2 * table + 200
  assert not any(sum(sent[kind]) for kind in hlo.KINDS if kind != 'all-reduce')


@pytest.mark.long
def test_with_split_parameters_it_gathers_them_once_and_sends_no_activation():
  sent, _, split = update_on((1, 4, 1))
  assert sum(sent['all-gather']) == sum(jax.tree.leaves(split)) > 0
  plain, *_ = update_on((4, 1, 1))
  assert (sum(sent['all-reduce']) + sum(sent['reduce-scatter'])
          <= sum(plain['all-reduce']) + 200)


@pytest.mark.long
def test_with_split_heads_it_sends_activations_and_gathers_nothing():
  sent, *_ = update_on((2, 1, 2))
  activation = 2 * 11 * 12 * 4  # A device's rows, target positions, width, bytes.
  # Forward: the table and the three parts of the layer. Backward: some of them again.
  assert sent['all-reduce'].count(activation) >= 5
  assert not sent['all-gather']
