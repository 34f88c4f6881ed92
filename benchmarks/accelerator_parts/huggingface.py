"""The same searches by `generate` of Hugging Face's transformers, which runs PyTorch eagerly."""

from collections.abc import Iterator
from typing import Any

from accelerator_parts.models import format_error, work_of
from accelerator_parts.timing import time_in_blocks


def measure(model: str, length: int, batches: list[int]) -> Iterator[dict[str, Any]]:
  """Yields a row for each search and batch: random weights, `length` tokens in and out.

  The model has the same shape as this project's, in its 16-bit dtype.
  """
  import torch
  import transformers

  on_a_gpu = torch.cuda.is_available()
  device = 'cuda' if on_a_gpu else 'cpu'
  work = work_of(model, 1, length)
  shape = work.model
  torch.manual_seed(0)
  transformers.logging.set_verbosity_error()
  marian = transformers.MarianMTModel(
    transformers.MarianConfig(
      vocab_size=work.vocabulary_size,
      d_model=shape.model_dim,
      encoder_layers=shape.num_layers,
      decoder_layers=shape.decoder_depth,
      encoder_ffn_dim=shape.ff_dim,
      decoder_ffn_dim=shape.ff_dim,
      encoder_attention_heads=shape.num_heads,
      decoder_attention_heads=shape.num_heads,
      scale_embedding=True,
      pad_token_id=0,
      eos_token_id=2,
      decoder_start_token_id=0,
      forced_eos_token_id=None,
      max_position_embeddings=2 * length,
    )
  )
  marian.to(device, getattr(torch, shape.dtype)).eval()
  wait = torch.cuda.synchronize if on_a_gpu else lambda: None
  for beams in (1, 4):
    for sentences in batches:
      row = {'beams': beams, 'sentences': sentences}
      tokens = torch.tensor(
        work._replace(rows=sentences).sources(), dtype=torch.long, device=device
      )

      def start(tokens=tokens, beams=beams):
        with torch.inference_mode():
          marian.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            num_beams=beams,
            do_sample=False,
            length_penalty=0.6,
            min_new_tokens=length,
            max_new_tokens=length,
          )

      try:
        timed = time_in_blocks(start, wait, most=8)
        yield {
          **row,
          **timed,
          'tokens_per_second': sentences * length / timed['seconds'],
          'sentences_per_second': sentences / timed['seconds'],
        }
      except Exception as error:  # One batch may not fit into memory.
        yield {**row, 'error': format_error(error)}
