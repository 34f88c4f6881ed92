"""The same Transformer with `torch.nn.Transformer`, as PyTorch users write it."""

import math
import os

import numpy as np
import torch
from torch import nn
from workload import Workload

from transformer.data.batch import BOS_ID
from transformer.model.config import ModelConfig
from transformer.ops.positions import sinusoidal_positions


class PyTorchTransformer(nn.Module):
  """Shared embeddings, sinusoidal positions, `nn.Transformer`, tied output projection."""

  def __init__(
    self, config: ModelConfig, vocabulary_size: int, length: int, paper_dropout: bool
  ):
    """Builds the model.

    Args:
      config: its shape; key and value dims must be model_dim / num_heads.
      vocabulary_size: number of tokens, N.
      length: the longest sequence.
      paper_dropout: disable the dropout that `nn.Transformer` has and the paper
        has not: on attention weights and inside the feed-forward sublayer.
    """
    super().__init__()
    self.scale = math.sqrt(config.model_dim)
    self.embedding = nn.Embedding(vocabulary_size, config.model_dim)
    nn.init.normal_(self.embedding.weight, std=config.model_dim**-0.5)
    self.register_buffer(
      'positions',
      torch.tensor(np.asarray(sinusoidal_positions(length, config.model_dim))),
    )
    self.dropout = nn.Dropout(config.dropout)
    self.transformer = nn.Transformer(
      config.model_dim,
      config.num_heads,
      config.num_layers,
      config.num_layers,
      config.ff_dim,
      config.dropout,
      batch_first=True,
      norm_first=config.norm_position == 'pre',
    )
    if paper_dropout:
      for layer in [*self.transformer.encoder.layers, *self.transformer.decoder.layers]:
        layer.dropout = nn.Identity()
        for name in ('self_attn', 'multihead_attn'):
          if hasattr(layer, name):
            getattr(layer, name).dropout = 0.0

  def forward(self, source_BS, inputs_BT):
    """Returns logits [B, T, N] from token ids."""

    def embed(tokens):
      x = self.embedding(tokens) * self.scale + self.positions[: tokens.shape[1]]
      return self.dropout(x)

    mask_TT = nn.Transformer.generate_square_subsequent_mask(
      inputs_BT.shape[1], device=inputs_BT.device
    )
    out_BTD = self.transformer(
      embed(source_BS), embed(inputs_BT), tgt_mask=mask_TT, tgt_is_causal=True
    )
    return out_BTD @ self.embedding.weight.T


def make_training_step_benchmark(work: Workload, compiled: bool, paper_dropout: bool):
  """Builds a training step whose loss is read immediately; see `make_step`.

  Returns:
    The function to time.
  """
  step = make_step(work, compiled, paper_dropout)

  def run():
    notes = {'loss': float(step())}
    if torch.cuda.is_available():
      notes['device_bytes'] = torch.cuda.max_memory_allocated()
    return notes

  return run


def make_step(work: Workload, compiled: bool, paper_dropout: bool):
  """Builds a training step: label-smoothed cross entropy and Adam, fused if PyTorch supports it.

  On a GPU, bfloat16 through autocast if the model's dtype is bfloat16; PyTorch chooses the fused
  kernel for attention, causal, without segments.

  Args:
    work: the model and the batch.
    compiled: use `torch.compile`.
    paper_dropout: see `PyTorchTransformer`.

  Returns:
    A function that starts a training step and returns its loss without waiting for the device.
  """
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  torch.set_float32_matmul_precision(
    'highest' if work.model.dtype == 'float32' else 'high'
  )
  torch.manual_seed(0)
  model = (
    PyTorchTransformer(work.model, work.vocabulary_size, work.length, paper_dropout)
    .to(device)
    .train()
  )
  optimizer = torch.optim.Adam(
    model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
  )
  loss_of = nn.CrossEntropyLoss(label_smoothing=work.label_smoothing)

  def forward_loss(source_BS, inputs_BT, targets_BT):
    with torch.autocast(device, torch.bfloat16, enabled=work.model.dtype == 'bfloat16'):
      logits_BTN = model(source_BS, inputs_BT)
      return loss_of(logits_BTN.flatten(0, 1).float(), targets_BT.flatten())

  forward_loss = torch.compile(forward_loss) if compiled else forward_loss
  source, target = work.batch()
  inputs = np.concatenate([np.full_like(target[:, :1], BOS_ID), target[:, :-1]], axis=1)
  given = [
    torch.tensor(array, dtype=torch.long, device=device)
    for array in (source, inputs, target)
  ]

  def step():
    optimizer.zero_grad(set_to_none=True)
    loss = forward_loss(*given)
    loss.backward()
    optimizer.step()
    return loss.detach()

  return step
