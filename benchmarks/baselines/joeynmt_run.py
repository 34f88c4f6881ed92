"""A run of this project as a model of JoeyNMT, with the same weights.

Both have the paper's architecture, with the same epsilon of the norms and the same order of the
sinusoids. JoeyNMT's vocabularies begin with `<unk>`, so the first rows of the embeddings are
reordered. Its attention always has biases.
"""

import re
import subprocess
from pathlib import Path

import numpy as np
import side_by_side

from baselines import joeynmt
from transformer.config import flatten
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.errors import UserError
from transformer.ops.positions import sinusoidal_positions
from transformer.runs.loading import Run
from transformer.tools.convert.vocabulary_pieces import pieces_of

_FIRST = (UNK_ID, PAD_ID, BOS_ID, EOS_ID)  # The order in its vocabularies.
_POSITIONS = 5000  # It stores them with the weights.
# Parts of our names and their replacements; its encoder and decoder name sublayers differently.
_STACKS = {
  'encoder': {'self_attention': 'src_src_att', 'self_attention_residual': 'layer_norm'},
  'decoder': {
    'self_attention': 'trg_trg_att',
    'self_attention_residual': 'x_layer_norm',
    'cross_attention': 'src_trg_att',
    'cross_attention_residual': 'dec_layer_norm',
  },
}
_PARTS = {
  'feed_forward_residual': 'feed_forward.layer_norm',
  'query': 'q_layer',
  'key': 'k_layer',
  'value': 'v_layer',
  'output': 'output_layer',
  'inner': 'pwff_layer.0',
  'outer': 'pwff_layer.3',
  'kernel': 'weight',
  'scale': 'weight',
}


def write_model(folder: Path, run: Run, vocabularies: list[str]):
  """Writes `weights.npz`, and `config.yaml` for JoeyNMT's translation."""
  model, decode = run.config.model, run.config.decode
  np.savez(folder / 'weights.npz', **tensors(flatten(run.params), model.model_dim))
  sides = {}
  for side, pieces, path in zip(
    ('src', 'trg'), pieces_of(run.vocabulary), vocabularies, strict=True
  ):
    listed = folder / f'{side}.txt'
    listed.write_text(
      '\n'.join(pieces[token] for token in _order(len(pieces))) + '\n', encoding='utf-8'
    )
    sides[side] = joeynmt.side(side, listed, path)
  stacks = {
    name: joeynmt.stack(
      depth, model.num_heads, model.model_dim, model.ff_dim, 0.0, model.norm_position
    )
    | {'activation': model.activation}
    for name, depth in (('encoder', model.num_layers), ('decoder', model.decoder_depth))
  }
  joeynmt.write(
    folder / 'config.yaml',
    {
      'name': 'run',
      'model_dir': str(folder),
      'use_cuda': False,
      'data': {
        'train': '-',
        **sides,
      },  # It requires a text's name, and does not open it.
      'training': {'batch_size': 1},
      'testing': {
        'load_model': str(folder / 'weights.ckpt'),
        'beam_size': decode.beam_size,
        'beam_alpha': decode.alpha,
        'batch_type': 'token',
        'batch_size': 1024,
        'max_output_length': run.config.data.max_length + decode.max_extra_length,
      },
      'model': {
        'tied_embeddings': model.share_embeddings,
        'tied_softmax': model.tie_output,
        **stacks,
      },
    },
  )


def make_command(source: str, output: str, python: str, folder: str):
  """Returns a function that runs JoeyNMT's `translate` in another Python."""
  paths = [str(Path(folder, name)) for name in ('weights.npz', 'weights.ckpt')]
  done = subprocess.run(
    [
      python,
      '-c',
      'import sys, numpy, torch\n'
      'arrays = numpy.load(sys.argv[1])\n'
      'torch.save({"model_state": {name: torch.from_numpy(arrays[name]) for name in arrays}}, '
      'sys.argv[2])',
      *paths,
    ],
    stderr=subprocess.PIPE,
    text=True,
    check=False,
  )
  if done.returncode:
    raise RuntimeError(done.stderr.rstrip().split('\n')[-1])
  return side_by_side.make_command(
    source,
    output,
    python,
    '-m',
    'joeynmt',
    'translate',
    str(Path(folder, 'config.yaml')),
  )


def tensors(params: dict[str, np.ndarray], dim: int) -> dict[str, np.ndarray]:
  """Returns JoeyNMT's tensors by name, from parameters by path."""
  table = params.pop('target_embedding.table')
  found = {
    'trg_embed.lut.weight': table,
    'src_embed.lut.weight': params.pop('source_embedding.table', table),
    'decoder.output_layer.weight': params.pop('output', table),
  }
  found = {name: np.asarray(rows)[_order(len(rows))] for name, rows in found.items()}
  for path, values in params.items():
    array = np.asarray(values)
    if path.endswith('.kernel'):
      ends = (
        (-1, array.shape[-1])
        if path.split('.')[-2] in ('output', 'outer')
        else (dim, -1)
      )
      array = array.reshape(ends).T
    found[_name(path)] = array.reshape(-1) if path.endswith('.bias') else array
  for name in [
    name for name in found if name.endswith(('_layer.weight', '_layer.0.weight'))
  ]:
    if '.layers.' in name:
      found.setdefault(
        name.replace('.weight', '.bias'), np.zeros(len(found[name]), np.float32)
      )
  positions = np.asarray(sinusoidal_positions(_POSITIONS, dim))[None]
  return {**found, 'encoder.pe.pe': positions, 'decoder.pe.pe': positions}


def _order(size):
  return [*_FIRST, *range(len(_FIRST), size)]


def _name(path):
  if norm := re.fullmatch(r'(encoder|decoder)_norm\.(scale|bias)', path):
    return f'{norm[1]}.layer_norm.{_PARTS.get(norm[2], norm[2])}'
  place = re.fullmatch(r'(encoder|decoder)_(\d+)\.(.*)', path)
  if not place:
    raise UserError(f'JoeyNMT has no parameter like {path}')
  parts = _PARTS | _STACKS[place[1]]
  rest = [parts.get(part, part) for part in place[3].split('.') if part != 'layer_norm']
  return '.'.join([place[1], 'layers', place[2], *rest])
