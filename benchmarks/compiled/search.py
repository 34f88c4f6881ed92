"""The search of a config, compiled for a device that this machine may lack."""

import dataclasses
import math
import time
from typing import Any

import jax
import numpy as np

from benchmarks.compiled.training_step import Compiled, memory_of, model_of
from transformer.config import Config
from transformer.decoding.config import DecodeOptions
from transformer.decoding.decoder_search import DecoderSearch, SearchInputs
from transformer.decoding.search_programs import SearchPrograms
from transformer.model.transformer import init_params
from transformer.runs.run_directory import commit
from transformer.training.config import MeshConfig
from transformer.training.mesh import make_mesh, sentence_sharding


def compile_search(settings: Config, length: int, device: Any) -> Compiled:
  """Compiles the program that adds the last tokens to translations, as in `eval.py`.

  Each iteration of a loop adds one token to each sentence. Its caches have their full length.

  Args:
    settings: `decode` has the beam and the number of sentences in a batch.
    length: tokens of each source.
    device: a description of the device.
  """
  data = settings.data
  sentences = settings.decode.batch_size
  model = model_of(settings)
  search = DecoderSearch([model], DecodeOptions(**dataclasses.asdict(settings.decode)))
  rows = sentence_sharding(make_mesh(MeshConfig(), sentences, [device]), sentences)
  programs = SearchPrograms(search, data.max_length, rows)
  params = jax.eval_shape(lambda: init_params(model, 0))
  inputs = SearchInputs(
    np.zeros((sentences, length), np.int32), np.zeros(sentences, np.int32)
  )
  start = time.monotonic()
  compiled = programs.compile_largest([params], inputs)
  facts = {
    'device_kind': device.device_kind,
    'beam_size': settings.decode.beam_size,
    'sentences': sentences,
    'length': length,
    'max_extra_length': settings.decode.max_extra_length,
    'dtype': settings.model.dtype,
    'commit': commit(),
    'jax': jax.__version__,
    'compile_seconds': time.monotonic() - start,
  }
  return Compiled(facts, memory_of(compiled), math.nan, math.nan, compiled.as_text())
