"""What the command counts in the loop of a search that the compiler for GPUs compiled."""

import importlib.util
import json

import pytest

from benchmarks.compiled import hlo
from benchmarks.gpu_costs import chips, search_steps
from tests.benchmarks import tiny_model

ARGUMENTS = [
  *tiny_model.FLAGS,
  '--config.decode.beam_size=2',
  '--config.decode.batch_size=3',
]
INSTALLED = importlib.util.find_spec('jax_cuda12_plugin') is not None

# A search of the compiler's notations: before its loop a fusion, in each turn a product by cuBLAS
# and a fusion, and in the condition a fusion. A turn has no known number.
SEARCH = """HloModule jit__advance, is_scheduled=true

%fused_add (p0: f32[64], p1: f32[64]) -> f32[64] {
  %p0 = f32[64]{0} parameter(0)
  %p1 = f32[64]{0} parameter(1)
  ROOT %add.1 = f32[64]{0} add(%p0, %p1)
}

%fused_less (p2: s32[]) -> pred[] {
  %p2 = s32[] parameter(0)
  %limit = s32[] constant(33)
  ROOT %less.1 = pred[] compare(%p2, %limit), direction=LT
}

%condition (state.1: (s32[], f32[64], bf16[64,32], bf16[32,16])) -> pred[] {
  %state.1 = (s32[], f32[64]{0}, bf16[64,32]{1,0}, bf16[32,16]{1,0}) parameter(0)
  %turn.1 = s32[] get-tuple-element(%state.1), index=0
  ROOT %less = pred[] fusion(%turn.1), kind=kLoop, calls=%fused_less
}

%body (state.2: (s32[], f32[64], bf16[64,32], bf16[32,16])) -> (s32[], f32[64], bf16[64,32], bf16[32,16]) {
  %state.2 = (s32[], f32[64]{0}, bf16[64,32]{1,0}, bf16[32,16]{1,0}) parameter(0)
  %turn.2 = s32[] get-tuple-element(%state.2), index=0
  %row = f32[64]{0} get-tuple-element(%state.2), index=1
  %x = bf16[64,32]{1,0} get-tuple-element(%state.2), index=2
  %y = bf16[32,16]{1,0} get-tuple-element(%state.2), index=3
  %product = (bf16[64,16]{1,0}, s8[0]{0}) custom-call(%x, %y), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  %sum = f32[64]{0} fusion(%row, %row), kind=kLoop, calls=%fused_add
  ROOT %new = (s32[], f32[64]{0}, bf16[64,32]{1,0}, bf16[32,16]{1,0}) tuple(%turn.2, %sum, %x, %y)
}

ENTRY %main (a: f32[64], b: bf16[64,32], c: bf16[32,16]) -> f32[64] {
  %a = f32[64]{0} parameter(0)
  %b = bf16[64,32]{1,0} parameter(1)
  %c = bf16[32,16]{1,0} parameter(2)
  %before = f32[64]{0} fusion(%a, %a), kind=kLoop, calls=%fused_add
  %zero = s32[] constant(0)
  %first = (s32[], f32[64]{0}, bf16[64,32]{1,0}, bf16[32,16]{1,0}) tuple(%zero, %before, %b, %c)
  %loop = (s32[], f32[64]{0}, bf16[64,32]{1,0}, bf16[32,16]{1,0}) while(%first), condition=%condition, body=%body
  ROOT %result = f32[64]{0} get-tuple-element(%loop), index=1
}
"""  # noqa: E501


@pytest.fixture(scope='module')
def search_command(start_command):
  yield from start_command('benchmarks.gpu_costs.searches')


def test_the_kernels_of_a_decoding_step_are_counted_once():
  chip = chips.chip_of('h100')
  found = search_steps.read(hlo.parse(SEARCH))
  assert sorted(kernel.name for kernel in found) == ['less', 'product', 'sum']
  product_bytes = 2 * (64 * 32 + 32 * 16 + 64 * 16)
  costs = search_steps.cost(found, chip)
  assert costs['kernels'] == 3 and costs['kinds'] == {'fusion': 2, 'product': 1}
  # Of the condition, a counter is read and a boolean written.
  assert costs['moved'] == product_bytes + 3 * 4 * 64 + 5
  assert costs['seconds'] > 0


def test_user_errors_are_one_line_messages(search_command):
  rejects = search_command.rejects
  assert '--config is missing' in rejects('--chip=h100')
  assert '--chip must be one of h100, h200, ' in rejects(*ARGUMENTS, '--chip=v100')
  assert '--length=65 exceeds data.max_length=64' in rejects(
    *ARGUMENTS, '--config.data.max_length=64', '--length=65'
  )


@pytest.mark.skipif(INSTALLED, reason='the compiler is installed')
def test_without_the_compiler_the_command_names_its_requirements(search_command):
  assert 'benchmarks/gpu_costs/requirements.txt' in search_command.rejects(*ARGUMENTS)


@pytest.mark.long
@pytest.mark.skipif(not INSTALLED, reason='needs the compiler for GPUs')
def test_a_search_is_compiled(search_command, tmp_path):
  path = tmp_path / 'x.json'
  status, out, err = search_command(*ARGUMENTS, f'--json={path}')
  assert status == 0, err
  assert out.startswith('h100, beam 2: 3 sentences of 32 tokens, bfloat16, commit ')
  costs = json.loads(path.read_text('utf-8'))
  assert costs['kernels'] > costs['kinds']['product'] > 10
  assert costs['moved'] > 2 * 1000 * 128  # The output projection is read in each step.
