"""Hugging Face's library returns the same logits, translations and tokens.

tests/requirements-huggingface.txt has its packages.
"""

from typing import NamedTuple

import jax
import numpy as np
import pytest

from tests.data.vocabulary.test_kinds import HOSTILE
from tests.sentences import english_and_french
from tests.tools.convert import random_models
from tests.tools.convert.random_models import SHAPE, logits_of, opinionated, padded
from transformer.config import Config
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import DecodeConfig
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.tools.convert import huggingface_format, huggingface_import

torch = pytest.importorskip(
  'torch', reason='tests/requirements-huggingface.txt has the packages'
)
transformers = pytest.importorskip(
  'transformers', reason='tests/requirements-huggingface.txt has the packages'
)

KINDS = random_models.KINDS | {
  'odd width': {'model_dim': 15, 'num_heads': 3},
  'norms before, the rest': {
    'norm_position': 'pre',
    'num_layers': 3,
    'decoder_layers': 1,
    'activation': 'gelu',
    'output_bias': True,
    'attention_bias': 'none',
  },
}
LONGEST, EXTRA, COUNT = 40, 13, 300


class Exported(NamedTuple):
  """A model of this project, and what the library loads of its export."""

  config: Config
  model: Transformer
  params: dict
  hf_model: 'transformers.MarianMTModel'
  tokenizer: 'transformers.MarianTokenizer'


@pytest.fixture(scope='module')
def lines():
  return [line for side in english_and_french(COUNT // 2, 3) for line in side]


@pytest.fixture(scope='module')
def vocabulary(lines):
  return Vocabulary.train([*lines, *HOSTILE[:20]], 600)


@pytest.fixture(scope='module')
def export(vocabulary, tmp_path_factory):
  """Returns a function that exports a random model; see `opinionated` for its arguments."""

  def export(settings, *arguments):
    config = Config(
      DataConfig(max_length=LONGEST),
      ModelConfig(**{**SHAPE, **settings}),
      decode=DecodeConfig(max_extra_length=EXTRA),
    )
    model = Transformer(config.model, vocabulary.size)
    params = opinionated(model, *arguments)
    folder = tmp_path_factory.mktemp('model')
    huggingface_format.write_model(folder, config, params, vocabulary)
    hf_model, loading = transformers.AutoModelForSeq2SeqLM.from_pretrained(
      folder, output_loading_info=True
    )
    assert not any(loading.values()), loading
    return Exported(
      config,
      model,
      params,
      hf_model,
      transformers.AutoTokenizer.from_pretrained(folder),
    )

  return export


@pytest.fixture(scope='module')
def exported(export):
  return export({}, 0.7)


def logits(model, params, sources, targets):
  return np.einsum(
    'BTD,ND->BTN', *jax.jit(model.apply)({'params': params}, *sources, *targets)
  )


@pytest.mark.long(but=('published', 'norms before'))
@pytest.mark.parametrize('kind', KINDS)
def test_logits_are_the_same_and_a_model_that_the_library_saves_round_trips(
  export, vocabulary, tmp_path, kind
):
  rng = np.random.default_rng(0)

  def sentences(*lengths):
    return [rng.integers(4, vocabulary.size, length).tolist() for length in lengths]

  sources = padded([[*ids, EOS_ID] for ids in sentences(39, 7, 0)], 41)
  targets = padded([[BOS_ID, *ids] for ids in sentences(33, 34, 5)], 36)
  # With small norms the logits depend on the epsilon.
  config, model, params, hf_model, tokenizer = export(KINDS[kind], 0.4, 0.4)
  wanted = logits(model, params, sources, targets)
  assert wanted.std() > 0.1
  real_BT = targets[1].astype(bool)
  theirs = logits_of(hf_model, sources, targets)
  np.testing.assert_allclose(
    theirs[real_BT],
    wanted[real_BT],
    rtol=0,
    atol=1e-5 if model.config.norm_position == 'post' else 3e-5,
  )
  # MarianMT is saved without positions, so those that the library makes itself must be right.
  hf_model.save_pretrained(tmp_path / 'again')
  again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / 'again')
  np.testing.assert_array_equal(logits_of(again, sources, targets), theirs)
  with torch.no_grad():
    for name, weight in hf_model.named_parameters():
      if 'positions' not in name:
        weight.mul_(1.25)  # As if it had trained.
  hf_model.save_pretrained(tmp_path)
  tokenizer.save_pretrained(tmp_path)
  vocabulary.save(tmp_path / 'vocabulary.model')
  back = huggingface_import.read_model(tmp_path)
  for name in ('share_embeddings', 'norm_position'):
    assert getattr(back.config.model, name) == getattr(config.model, name)
  ours = logits(
    Transformer(back.config.model, vocabulary.size), back.params, sources, targets
  )
  np.testing.assert_allclose(
    ours[real_BT], logits_of(hf_model, sources, targets)[real_BT], atol=2e-4
  )


def test_the_folder_holds_the_settings_of_the_run(exported):
  config, _, _, hf_model, tokenizer = exported
  wanted = {
    'num_beams': config.decode.beam_size,
    'length_penalty': config.decode.alpha,
    'early_stopping': True,
    'max_length': 1 + LONGEST + EXTRA,
    'forced_eos_token_id': None,
    'pad_token_id': PAD_ID,
    'eos_token_id': EOS_ID,
    'decoder_start_token_id': BOS_ID,
  }
  assert {name: getattr(hf_model.generation_config, name) for name in wanted} == wanted
  assert hf_model.config.max_position_embeddings == 1024
  ids = tokenizer('man ' * LONGEST, truncation=True)
  assert ids.keys() == {'input_ids', 'attention_mask'}
  assert len(ids['input_ids']) == LONGEST and ids['input_ids'][-1] == EOS_ID


def test_the_tokenizer_has_the_same_pieces_and_restores_the_text(
  exported, vocabulary, lines
):
  text = [*lines, 'Über 3 × é ’ “x”', 'a  b', '日本語 😀', '(a) <s> </s> #version']
  rows = exported.tokenizer(text)['input_ids']
  for line, ids, wanted in zip(text, rows, vocabulary.encode_batch(text), strict=True):
    assert ids == [*wanted, EOS_ID], line
  assert exported.tokenizer.batch_decode(rows, skip_special_tokens=True) == text
