"""Translations of 64 sentences as `eval.py` makes them, and as teacher forcing finds them."""

import dataclasses

import jax
import numpy as np

from tests.as_users_run import reference, tiny
from transformer.data.batch import EOS_ID, PAD_ID
from transformer.data.vocabulary import Vocabulary
from transformer.inference.forced import make_scorer
from transformer.inference.translate import Translator, make_search
from transformer.model.transformer import Transformer
from transformer.run import load_run, save_run
from transformer.training.mesh import sentence_sharding

SENTENCES = 64
LENGTH = 32  # Two buckets of lengths, 16 and 32.


def measure(folder):
  """Makes a run, loads it, and translates with it.

  Returns:
    `company` and `forced`, as the functions of these names return them.
  """
  config = tiny.make_config(data__max_length=LENGTH, decode__max_extra_length=10)
  lines = tiny.random_lines(2500, seed=1)
  vocabulary = Vocabulary.train(lines, tiny.VOCABULARY)
  params = opinionated(tiny.random_params(Transformer(config.model, vocabulary.size)), config,
                       encode(vocabulary, lines[:SENTENCES]))
  save_run(folder, config, vocabulary, params, [1])
  run = load_run(folder)
  return {'company': company(run, lines[:SENTENCES], lines[SENTENCES:100]),
          'forced': {str(beams): forced(run, params, lines[:SENTENCES], beams)
                     for beams in (run.config.decode.beam_size, 1)}}


def encode(vocabulary, lines) -> list[list[int]]:
  """Token ids with their end tokens, cut where translation cuts them."""
  return [[*ids[:LENGTH - 1], EOS_ID] for ids in vocabulary.encode_batch(lines)]


def opinionated(params, config, sentences):
  """Makes the model's distributions sharp, and no two alike, as they are after training.

  Its output is centred and spread, on sentences that stand for each other's translations, and
  the end token is made likelier.
  """
  outputs = reference.outputs_of(params, list(zip(sentences, sentences[::-1], strict=True)),
                                 heads=config.model.num_heads, norm=config.model.norm)
  sharper = 2.5 / outputs.std(0)
  last = params[f'decoder_{config.model.num_layers - 1}']['feed_forward_residual']['layer_norm']
  last['bias'] = np.float32((last['bias'] - outputs.mean(0)) * sharper)
  last['scale'] = np.float32(last['scale'] * sharper)
  params['target_embedding']['table'][EOS_ID] *= 2
  return params


def company(run, lines, others) -> dict:
  """Translates lines together, then among others and in another order, then some alone.

  Returns:
    A list each of what became of the lines: `together`, `otherwise` and, by their numbers,
    `alone`; and the lines' `tokens`.
  """
  decode = run.config.decode
  translate = Translator(run.model, run.vocabulary, decode, run.config.data.max_length,
                         rows=sentence_sharding(run.mesh, decode.batch_size),
                         nbest=decode.beam_size)
  together = translate(run.params, lines)
  otherwise = translate(run.params, [*others, *lines[::-1]])[len(others):][::-1]
  return {'together': together, 'otherwise': otherwise,
          'alone': {number: translate(run.params, lines[number:number + 1])[0]
                    for number in range(0, len(lines), 7)},
          'tokens': list(map(len, encode(run.vocabulary, lines)))}


def forced(run, params, lines, beams: int) -> dict:
  """Searches, and asks teacher forcing and the reference how likely what was found is.

  Returns:
    `hypotheses` found, how many are `distinct`, `lengths` of the best and how many of them
    have `ended`; log-probabilities `searched`, those `scored` by teacher forcing, and of the
    best those that are `exact`, by the reference; and `missed`, the most by which a token of
    the best is less likely than the likeliest in its place.
  """
  decode = dataclasses.replace(run.config.decode, beam_size=beams)
  encoded = encode(run.vocabulary, lines)
  source = np.full((len(lines), LENGTH), PAD_ID, np.int32)
  for row, ids in zip(source, encoded, strict=True):
    row[:len(ids)] = ids
  limits = np.array([len(ids) + decode.max_extra_length for ids in encoded], np.int32)
  found = jax.device_get(jax.jit(make_search(run.model, decode))(run.params, source, limits, None))
  scorer = jax.jit(make_scorer([run.model]))
  scored = np.stack([scorer((run.params,), source, found.tokens[:, beam])
                     for beam in range(beams)], axis=1)
  best = [tokens[0, :lengths[0]] for tokens, lengths in zip(found.tokens, found.lengths,
                                                            strict=True)]
  exact = reference.log_probs_of(params, list(zip(encoded, best, strict=True)),
                                 heads=run.config.model.num_heads, norm=run.config.model.norm)
  return {'hypotheses': int((found.lengths > 0).sum()),
          'distinct': len({tokens.tobytes() for tokens in found.tokens.reshape(-1, found.tokens
                                                                               .shape[-1])}),
          'lengths': sorted(map(len, best)),
          'ended': sum(int(each[-1]) == EOS_ID for each in best),
          'searched': found.log_probs.tolist(), 'scored': scored.tolist(),
          'exact': [float(each[0].sum()) for each in exact],
          'missed': max(float((each[1] - each[0]).max()) for each in exact)}
