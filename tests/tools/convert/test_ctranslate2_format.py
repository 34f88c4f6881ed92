"""CTranslate2 itself returns the same probabilities for every kind of model."""

import ctranslate2
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tools.convert import random_models
from tests.tools.convert.random_models import SHAPE, opinionated, padded
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.tools.convert.ctranslate2_format import check_model, write_model

VOCABULARY, LONG, SHORT = 47, 149, 16
MODERN = {
  'norm_position': 'pre',
  'rms_norm': True,
  'activation': 'swiglu',
  'positions': 'rotary',
  'key_dim': 6,
  'value_dim': 6,
}
KINDS = random_models.KINDS | {
  'rms norm': {'rms_norm': True},
  'swiglu': {'activation': 'swiglu'},
  'learned': {'positions': 'learned', 'max_positions': 151},
  'rotary': {'positions': 'rotary', 'key_dim': 6, 'value_dim': 6},
  'relative': {'positions': 'relative'},
  'modern': MODERN,
  'heads that do not divide': {'num_heads': 3, 'key_dim': 5, 'value_dim': 5},
}
PIECES = [
  {PAD_ID: '<pad>', BOS_ID: '<s>', EOS_ID: '</s>', UNK_ID: '<unk>'}.get(i, f'▁{i}')
  for i in range(VOCABULARY)
]


def random_model(strength=1.0, **settings):
  model = Transformer(ModelConfig(**{**SHAPE, **settings}), VOCABULARY)
  return model, opinionated(model, strength)


@pytest.fixture(scope='module', params=KINDS)
def exported(request, tmp_path_factory):
  """A model, its parameters, and CTranslate2's translator of the exported model."""
  model, params = random_model(**KINDS[request.param])
  folder = tmp_path_factory.mktemp('model')
  write_model(folder, model.config, params, (PIECES, PIECES))
  return model, params, ctranslate2.Translator(str(folder), compute_type='float32')


def sentences(count, longest, seed):
  rng = np.random.default_rng(seed)
  return [
    rng.integers(4, VOCABULARY, rng.integers(1, longest)).tolist() for _ in range(count)
  ]


def pieces(ids):
  return [PIECES[i] for i in ids]


def forced_log_probs(model, params, sources, targets):
  """Returns, for each target, log p of every token and of EOS."""

  @jax.jit
  def log_probs_BTN(params, *batch):
    x_BTD, output_ND = model.apply({'params': params}, *batch)
    return jax.nn.log_softmax(jnp.einsum('BTD,ND->BTN', x_BTD, output_ND))

  scores_BTN = np.asarray(
    log_probs_BTN(
      params,
      *padded([[*source, EOS_ID] for source in sources], LONG + 1),
      *padded([[BOS_ID, *target] for target in targets], LONG + 1),
    )
  )
  return [
    log_probs_TN[np.arange(len(target) + 1), [*target, EOS_ID]]
    for log_probs_TN, target in zip(scores_BTN, targets, strict=True)
  ]


@pytest.mark.long(but=('published',))
def test_a_given_translation_has_the_same_probability_token_by_token(exported):
  model, params, translator = exported
  # The long sentence has distances beyond T5's last bucket; all share one batch.
  sources = [list(range(4, 44)) * 3 + [5] * 29, *sentences(1, 9, 0), [7]]
  targets = [list(range(43, 3, -1)) * 3 + [6] * 29, [9, 11, 4], [8]]
  scores = translator.score_batch(
    *([pieces(ids) for ids in side] for side in (sources, targets))
  )
  wanted = forced_log_probs(model, params, sources, targets)
  assert len(wanted[0]) == LONG + 1 and wanted[0].std() > 0.5
  for score, log_probs in zip(scores, wanted, strict=True):
    # CTranslate2 approximates exponentials otherwise on each kind of processor.
    np.testing.assert_allclose(score.log_probs, log_probs, rtol=1e-3, atol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
  'quantization', ['float32', 'float16', 'int16', 'int8', 'int8_float16']
)
def test_matrices_are_stored_as_asked_for(tmp_path, quantization):
  model, params = random_model(0.4, **MODERN)
  sizes = []
  for kind in ('float32', quantization):
    (tmp_path / kind).mkdir(exist_ok=True)
    write_model(
      tmp_path / kind, model.config, params, (PIECES, PIECES), quantization=kind
    )
    sizes.append((tmp_path / kind / 'model.bin').stat().st_size)
  assert (sizes[1] < sizes[0]) == (quantization != 'float32')
  # Computed in float32, because int8 saturates on processors without the right instructions.
  translator = ctranslate2.Translator(
    str(tmp_path / quantization), compute_type='float32'
  )
  source, target = sentences(1, SHORT, 3)[0], [9, 11, 4]
  scores = translator.score_batch([pieces(source)], [pieces(target)])[0].log_probs
  wanted = forced_log_probs(model, params, [source], [target])[0]
  np.testing.assert_allclose(
    scores, wanted, atol=1e-4 if quantization == 'float32' else 0.03
  )


def test_settings_that_ctranslate2_lacks_are_rejected_by_name(tmp_path):
  for settings, fact in (
    ({'query_key_norm': True}, 'query_key_norm=True'),
    ({'key_dim': 8, 'value_dim': 16}, 'key_dim=8 with model.value_dim=16'),
  ):
    with pytest.raises(
      UserError, match=f'^CTranslate2 does not support model.{fact}: '
    ):
      check_model(ModelConfig(**settings))
  model, params = random_model(**MODERN)
  attention = params['encoder_1']['self_attention']
  for part, added in (
    (attention, 'sink'),
    (attention['query'], 'scale'),
    (params, 'gate'),
  ):
    part[added] = np.ones(2, np.float32)
    with pytest.raises(
      UserError, match=rf'^CTranslate2 does not support [a-z_1.]*{added}: '
    ):
      write_model(tmp_path, model.config, params, (PIECES, PIECES))
    del part[added]
  assert not any(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize(('length', 'longest'), [(0, 1024), (1031, 1031)])
def test_positions_reach_the_default_or_the_requested_length(tmp_path, length, longest):
  model, params = random_model()
  write_model(tmp_path, model.config, params, (PIECES, PIECES), length=length)
  with pytest.raises(RuntimeError, match=f'No position encodings .* >= {longest}'):
    ctranslate2.Translator(str(tmp_path)).translate_batch(
      [['▁5'] * longest], max_input_length=0
    )
