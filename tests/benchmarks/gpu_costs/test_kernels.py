"""The kernels that are read in the text of a GPU's compiler, and their estimated times."""

import pytest

from benchmarks.compiled import hlo
from benchmarks.compiled.training_step import Compiled
from benchmarks.gpu_costs import chips, estimate, kernels

# The notations of the compiler for GPUs: a product as a fusion and one by cuBLAS, attention by
# cuDNN, a loop of 3 iterations that reads a slice and updates one in place, an asynchronous fusion,
# a conditional, and an all-reduce.
GPU = """HloModule jit_step, is_scheduled=true

%fused_dot (p0: bf16[64,32], p1: bf16[32,16]) -> bf16[64,16] {
  %p0 = bf16[64,32]{1,0} parameter(0)
  %p1 = bf16[32,16]{1,0} parameter(1)
  ROOT %dot.1 = bf16[64,16]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%fused_slice (p2: f32[8,64], p3: s32[]) -> f32[1,64] {
  %p2 = f32[8,64]{1,0} parameter(0)
  %p3 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %slice.1 = f32[1,64]{1,0} dynamic-slice(%p2, %p3, %zero), dynamic_slice_sizes={1,64}
}

%fused_update (p4: f32[8,64], p5: f32[1,64], p6: s32[]) -> f32[512] {
  %p4 = f32[8,64]{1,0} parameter(0)
  %p5 = f32[1,64]{1,0} parameter(1)
  %p6 = s32[] parameter(2)
  %zero.1 = s32[] constant(0)
  %update.1 = f32[8,64]{1,0} dynamic-update-slice(%p4, %p5, %p6, %zero.1)
  ROOT %flat = f32[512]{0} bitcast(%update.1)
}

%fused_add (p7: f32[64], p8: f32[64]) -> f32[64] {
  %p7 = f32[64]{0} parameter(0)
  %p8 = f32[64]{0} parameter(1)
  ROOT %add.1 = f32[64]{0} add(%p7, %p8)
}

%body (state: (s32[], f32[8,64])) -> (s32[], f32[8,64]) {
  %state = (s32[], f32[8,64]{1,0}) parameter(0)
  %turn = s32[] get-tuple-element(%state), index=0
  %rows = f32[8,64]{1,0} get-tuple-element(%state), index=1
  %start = ((f32[8,64]{1,0}, s32[]), f32[1,64]{1,0}, u32[]) fusion-start(%rows, %turn), kind=kLoop, calls=%fused_slice
  %row = f32[1,64]{1,0} fusion-done(%start)
  %new = f32[512]{0} fusion(%rows, %row, %turn), kind=kLoop, calls=%fused_update, metadata={op_name="jit(step)/Transformer.encode/encoder_3/add"}
  ROOT %out = (s32[], f32[8,64]{1,0}) tuple(%turn, %new)
}

%small (x.1: f32[64]) -> f32[64] {
  %x.1 = f32[64]{0} parameter(0)
  ROOT %copy.1 = f32[64]{0} copy(%x.1)
}

%large (x.2: f32[64]) -> f32[64] {
  %x.2 = f32[64]{0} parameter(0)
  ROOT %sum.2 = f32[64]{0} fusion(%x.2, %x.2), kind=kLoop, calls=%fused_add
}

ENTRY %main (a: bf16[64,32], b: bf16[32,16], c: f32[8,64], d: f32[64]) -> f32[64] {
  %a = bf16[64,32]{1,0} parameter(0)
  %b = bf16[32,16]{1,0} parameter(1)
  %c = f32[8,64]{1,0} parameter(2)
  %d = f32[64]{0} parameter(3)
  %gemm = bf16[64,16]{1,0} fusion(%a, %b), kind=kCustom, calls=%fused_dot
  %cublas = (bf16[64,16]{1,0}, s8[0]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  %attend = (bf16[64,16]{1,0}, u8[0]{0}) custom-call(%gemm, %gemm), custom_call_target="__cudnn$fmhaSoftmax"
  %reduce = ((f32[64]{0}), f32[64]{0}) all-reduce-start(%d), channel_id=1, replica_groups=[1,16]<=[16], to_apply=%fused_add
  %reduced = f32[64]{0} all-reduce-done(%reduce)
  %zero.2 = s32[] constant(0)
  %first = (s32[], f32[8,64]{1,0}) tuple(%zero.2, %c)
  %loop = (s32[], f32[8,64]{1,0}) while(%first), condition=%body, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %chosen = f32[64]{0} conditional(%zero.2, %d, %d), branch_computations={%small, %large}
}
"""  # noqa: E501


def test_bytes_and_products_of_kernels():
  product = 2.0 * 64 * 32 * 16
  product_bytes = 2 * (64 * 32 + 32 * 16 + 64 * 16)
  row = 4 * 64
  found = {kernel.name: kernel[1:5] for kernel in kernels.read(hlo.parse(GPU))}
  assert found == {
    'gemm': (1, product_bytes, product, 'product'),
    'cublas': (1, product_bytes, product, 'product'),
    'attend': (1, 3 * 2 * 64 * 16, 0, '__cudnn$fmhaSoftmax'),
    # Of the loop's array, a row is read and written in each iteration.
    'start': (3, row + row + 4, 0, 'fusion'),
    'new': (3, row + row + row + 4, 0, 'fusion'),
    'sum.2': (1, 3 * 4 * 64, 0, 'fusion'),
  }


def test_time_is_the_maximum_of_bytes_and_products_plus_transfers():
  chip = chips.chip_of('h100')
  bandwidth = estimate.BANDWIDTH_REACHED * chip.bandwidth
  kernel = kernels.Kernel('x', 5, 3_000_000, 0.0, 'fusion', '')
  moving = 5 * (3e6 / bandwidth + estimate.LAUNCH_SECONDS)
  assert estimate.seconds_of(kernel, chip) == pytest.approx(moving)
  busy = kernel._replace(flops=1e12, kind='product')
  assert estimate.seconds_of(busy, chip) > 5e12 / chip.peak_flops
  facts = {'chips': 16, 'device_kind': chip.name}
  compiled = Compiled(facts, {'total': 1}, 1e6, 0.0, GPU)
  of_a_host = estimate.cost(compiled, chip, per_host=16)['seconds']
  of_two = estimate.cost(compiled, chip, per_host=8)['seconds']
  sent = 2 * 4 * 64 * 15 / 16
  assert of_a_host['collectives'] == pytest.approx(sent / chip.link)
  assert of_two['collectives'] == pytest.approx(sent / chip.network)
  for seconds in of_a_host, of_two:
    assert seconds['total'] == pytest.approx(sum(seconds.values()) / 2)


def test_a_hash_takes_the_time_of_its_integer_operations():
  # An addition, a rotation by one bit and an exclusive or of 1,000 numbers; indices do not count.
  hashing = """HloModule jit_bits

%fused_bits (p0: u32[1000]) -> pred[1000] {
  %p0 = u32[1000]{0} parameter(0)
  %one = u32[] constant(1)
  %ones = u32[1000]{0} broadcast(%one), dimensions={}
  %sum = u32[1000]{0} add(%p0, %ones)
  %left = u32[1000]{0} shift-left(%sum, %ones)
  %right = u32[1000]{0} shift-right-logical(%sum, %ones)
  %rotated = u32[1000]{0} or(%left, %right)
  %mixed = u32[1000]{0} xor(%rotated, %sum)
  ROOT %below = pred[1000]{0} compare(%mixed, %ones), direction=LT
}

ENTRY %main (a: u32[1000]) -> pred[1000] {
  %a = u32[1000]{0} parameter(0)
  ROOT %bits = pred[1000]{0} fusion(%a), kind=kLoop, calls=%fused_bits
}
"""
  (kernel,) = kernels.read(hlo.parse(hashing))
  assert kernel.integers == 3000
  slow = kernel._replace(integers=10**12)
  chip = chips.chip_of('h100')
  assert estimate.seconds_of(slow, chip) == pytest.approx(
    1e12 / (64 * 132 * 1.98e9), rel=1e-3
  )


def test_places_have_no_numbers_of_layers():
  found = kernels.read(hlo.parse(GPU))
  by_place = estimate.group_kernels(found, chips.chip_of('h100'), 'place')
  assert by_place['Transformer.encode/encoder/add'].kernels == 3
  assert sum(part.kernels for part in by_place.values()) == 10


def test_memory_beyond_what_jax_allocates_does_not_fit():
  chip = chips.chip_of('a100-40gb')
  facts = {'chips': 1, 'device_kind': chip.name}
  for part, fits in (0.7, True), (0.8, False):
    memory = {'total': part * chip.memory}
    compiled = Compiled(facts, memory, 1e6, 0.0, GPU)
    assert estimate.cost(compiled, chip, per_host=8)['fits'] is fits
