"""Translations of 64 sentences as `eval.py` makes them, scored by teacher forcing."""

import jax
import numpy as np

from tests.full_size import reference, tiny
from tests.toy_translation import whole_search
from transformer.data.batch import EOS_ID, PAD_ID
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import resolve_decode_options
from transformer.decoding.target_log_probs import score_tokens
from transformer.model.transformer import Transformer
from transformer.runs.loading import save_run
from transformer.trained_run import load

SENTENCES = 64
LENGTH = 32  # Two buckets of lengths, 16 and 32.


def measure(folder):
  """Saves a run, loads it, and translates with it.

  Returns:
    The results of `in_batches` and `by_teacher_forcing`.
  """
  config = tiny.make_config(data__max_length=LENGTH, decode__max_extra_length=10)
  lines = tiny.random_lines(2500, seed=1)
  vocabulary = Vocabulary.train(lines, tiny.VOCABULARY)
  params = sharpened(
    tiny.random_params(Transformer(config.model, vocabulary.size)),
    config,
    encode(vocabulary, lines[:SENTENCES]),
  )
  save_run(folder, config, vocabulary, params, [1])
  run = load(folder)
  return {
    'in_batches': in_batches(run, lines[:SENTENCES], lines[SENTENCES:100]),
    'by_teacher_forcing': {
      str(beams): by_teacher_forcing(run, params, lines[:SENTENCES], beams)
      for beams in (run.config.decode.beam_size, 1)
    },
  }


def encode(vocabulary, lines) -> list[list[int]]:
  """Returns token ids with EOS, truncated to the maximum length of translation."""
  return [[*ids[: LENGTH - 1], EOS_ID] for ids in vocabulary.encode_batch(lines)]


def sharpened(params, config, sentences):
  """Returns parameters whose distributions are sharp and vary, as after training.

  The last norm centers and scales the decoder's output for random sentence pairs, and the end
  token gets likelier.
  """
  outputs = np.concatenate(
    reference.outputs_of(
      config.model, params, list(zip(sentences, sentences[::-1], strict=True))
    )
  )
  sharper = 2.5 / outputs.std(0)
  last = params[f'decoder_{config.model.num_layers - 1}']['feed_forward_residual'][
    'layer_norm'
  ]
  last['bias'] = np.float32((last['bias'] - outputs.mean(0)) * sharper)
  last['scale'] = np.float32(last['scale'] * sharper)
  params['target_embedding']['table'][EOS_ID] *= 2
  return params


def in_batches(run, lines, others) -> dict:
  """Translates lines in different batches.

  Returns:
    A dict:

    - `together`, `otherwise`: translations of all lines, in their order, and in the opposite
      order after other lines,
    - `alone`: translations of some lines in a separate batch, by line number,
    - `tokens`: number of tokens in each line.
  """
  decode = run.config.decode
  decoding = resolve_decode_options(decode, 0, nbest=decode.beam_size)
  together = run.translations(lines, decoding)
  otherwise = run.translations([*others, *lines[::-1]], decoding)[len(others) :][::-1]
  return {
    'together': together,
    'otherwise': otherwise,
    'alone': {
      number: run.translations(lines[number : number + 1], decoding)[0]
      for number in range(0, len(lines), 7)
    },
    'tokens': list(map(len, encode(run.vocabulary, lines))),
  }


def by_teacher_forcing(run, params, lines, beams: int) -> dict:
  """Searches, and scores the hypotheses by teacher forcing and by the reference.

  Returns:
    A dict:

    - `hypotheses`, `distinct`: numbers of all and of different hypotheses,
    - `lengths`, `ended`: lengths of the best hypotheses, and how many end with EOS,
    - `searched`, `scored`: log-probabilities of the search and of teacher forcing,
    - `exact`: log-probabilities of the best hypotheses by the reference,
    - `missed`: the largest difference between the log-probabilities of the likeliest token at a
      position and of the token in the best hypothesis.
  """
  decode = resolve_decode_options(run.config.decode, 0, beam_size=beams)
  encoded = encode(run.vocabulary, lines)
  source = np.full((len(lines), LENGTH), PAD_ID, np.int32)
  for row, ids in zip(source, encoded, strict=True):
    row[: len(ids)] = ids
  limits = np.array([len(ids) + decode.max_extra_length for ids in encoded], np.int32)
  found = jax.device_get(whole_search(run.model, decode)(run.params, source, limits))
  scored = np.stack(
    [
      score_tokens((run.model,), [run.params], source, found.tokens[:, beam]).sum(1)
      for beam in range(beams)
    ],
    axis=1,
  )
  best = [
    tokens[0, : lengths[0]]
    for tokens, lengths in zip(found.tokens, found.lengths, strict=True)
  ]
  exact = reference.log_probs_of(
    run.config.model, params, list(zip(encoded, best, strict=True))
  )
  return {
    'hypotheses': int((found.lengths > 0).sum()),
    'distinct': len(
      {tokens.tobytes() for tokens in found.tokens.reshape(-1, found.tokens.shape[-1])}
    ),
    'lengths': sorted(map(len, best)),
    'ended': sum(int(tokens[-1]) == EOS_ID for tokens in best),
    'searched': found.log_probs.tolist(),
    'scored': scored.tolist(),
    'exact': [float(scores[0].sum()) for scores in exact],
    'missed': max(float((scores[1] - scores[0]).max()) for scores in exact),
  }
