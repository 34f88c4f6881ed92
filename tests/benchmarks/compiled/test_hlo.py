"""What `hlo` reads in compiled programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from benchmarks.compiled import hlo

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
  program = hlo.parse(TPU)
  assert sorted(hlo.collectives(program, 8)) == [
    ('all-gather', 1, 64 * 2, (0, 1, 2, 3)),
    ('all-reduce', 6, 8 * 4 + 6 * 2 + 4, (0, 1, 2, 3)),
    ('collective-permute', 1, 4 * 4, tuple(range(8))),
    ('reduce-scatter', 1, 2 * 4 * 4, (0, 1)),
  ]
  assert hlo.cycles(program) == 1000 + 6 * 50


@pytest.mark.parametrize(
  ('groups', 'first'),
  [
    ("mesh['data'=2,'tensor'=4] {'data'}", (0, 4)),
    ("mesh['data'=2,'tensor'=4] {'data','tensor'}", tuple(range(8))),
    ('[4,2]<=[8]', (0, 1)),
    ('[4,2]<=[2,4]T(1,0)', (0, 4)),
    ('{{1,5},{0,4}}', (1, 5)),
  ],
)
def test_the_devices_of_a_group(groups, first):
  text = f"""HloModule jit_step

ENTRY %main (x: f32[8]) -> f32[8] {{
  ROOT %sum = f32[8]{{0}} all-reduce(%x), channel_id=1, replica_groups={groups}, to_apply=%add
}}

%add (a: f32[], b: f32[]) -> f32[] {{
}}
"""
  assert [one.group for one in hlo.collectives(hlo.parse(text), 8)] == [first]


@pytest.mark.parametrize(
  ('said', 'else_', 'turns'),
  [
    ('direction=LT', 'direction=NE', 1),  # An unknown number counts as one.
    ('  ROOT %lt', '  %constant.7 = s32[]{:T(128)} constant(7)\n  ROOT %lt', 1),
    ('body=%body', 'body=%body, backend_config={"known_trip_count":{"n":"7"}}', 7),
  ],
)
def test_a_loop_has_the_trip_count_of_the_text(said, else_, turns):
  assert hlo.cycles(hlo.parse(TPU.replace(said, else_))) == 1000 + turns * 50


def test_bytes_that_a_device_sends():
  sent = {kind: hlo.Collective(kind, 3, 80, (0, 1, 2, 3)).sent for kind in hlo.KINDS}
  assert sent == dict.fromkeys(hlo.KINDS, 180) | {
    'all-reduce': 360,
    'collective-permute': 240,
  }


@pytest.mark.parametrize(
  ('kind', 'shape', 'size'),
  [
    ('all-reduce', '(f32[8]{0:T(128)}, bf16[2,3]{1,0:T(8,128)(2,1)})', 8 * 4 + 6 * 2),
    ('all-reduce', '((f32[8]{0}), f32[8]{0})', 8 * 4),  # A GPU's compiler.
    (
      'all-gather',
      '((f32[2]{0:T(128)}, bf16[3]{0}), (f32[8]{0:T(128)}, bf16[12]{0}))',
      32 + 24,
    ),
    ('reduce-scatter', '((f32[8]{0:T(128)}), f32[2]{0:T(128)})', 2 * 4 * 4),
    ('all-to-all', '((f32[8]{0:T(128)}), f32[4,2]{1,0:T(8,128)})', 32),
    ('collective-permute', '(f32[4]{0}, f32[4]{0}, u32[]{:S(2)}, u32[]{:S(2)})', 16),
  ],
)
def test_an_asynchronous_collective_has_the_size_of_its_result(kind, shape, size):
  text = f"""HloModule jit_step

ENTRY %main (x: f32[8]) -> f32[8] {{
  %start = {shape} {kind}-start(%x), channel_id=1, replica_groups=[2,4]<=[8], dimensions={{0}}
  ROOT %done = f32[8]{{0:T(128)}} {kind}-done(%start)
}}
"""
  (found,) = hlo.collectives(hlo.parse(text), 8)
  assert (found.kind, found.count, found.size) == (kind, 1, size)


LOCAL = {
  'all-reduce': (lambda x: jax.lax.psum(x, 'a'), 5, 5 * 7 * 4),
  'all-gather': (lambda x: jax.lax.all_gather(x, 'a', tiled=True), 5, 4 * 5 * 7 * 4),
  'reduce-scatter': (
    lambda x: jax.lax.psum_scatter(x, 'a', tiled=True),
    20,
    20 * 7 * 4,
  ),
  'all-to-all': (
    lambda x: jax.lax.all_to_all(x, 'a', 0, 0, tiled=True),
    20,
    20 * 7 * 4,
  ),
  'collective-permute': (
    lambda x: jax.lax.ppermute(x, 'a', [(i, (i + 1) % 4) for i in range(4)]),
    5,
    5 * 7 * 4,
  ),
}


def compiled(function, mesh, rows):
  """Returns the collectives of a function on each device's array of seven columns."""
  program = jax.jit(
    jax.shard_map(
      function,
      mesh=mesh,
      in_specs=PartitionSpec(),
      out_specs=PartitionSpec(),
      check_vma=False,
    )
  )
  text = program.lower(jnp.zeros((rows, 7))).compile().as_text()
  return hlo.collectives(hlo.parse(text), mesh.size)


@pytest.mark.parametrize('kind', hlo.KINDS)
def test_collectives_of_this_machines_own_compiler(kind):
  function, rows, size = LOCAL[kind]
  collectives = compiled(function, Mesh(np.array(jax.devices()), 'a'), rows)
  assert {(one.kind, one.group) for one in collectives} == {(kind, (0, 1, 2, 3))}
  assert sum(one.size * one.count for one in collectives) == size


def test_collectives_in_loops_and_in_groups_of_devices():
  def turn(x, _):
    return jax.lax.scan(lambda x, _: (jax.lax.psum(x, 'b') / 2, None), x, length=3)[
      0
    ], None

  mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ('a', 'b'))
  assert compiled(lambda x: jax.lax.scan(turn, x, length=5)[0], mesh, 5) == [
    ('all-reduce', 15, 140, (0, 1))
  ]
