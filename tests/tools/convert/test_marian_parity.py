"""A MarianMT folder shaped like the published models computes here what the library computes.

tests/requirements-huggingface.txt has the packages.
"""

import json

import jax
import numpy as np
import pytest

from tests.tools.convert.marian_folders import CODES, KINDS, known_text, write_folder
from tests.tools.convert.random_models import logits_of, padded
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.model.transformer import Transformer
from transformer.ops import linear
from transformer.tools.convert import huggingface_format, huggingface_import

torch = pytest.importorskip(
  'torch', reason='tests/requirements-huggingface.txt has the packages'
)
transformers = pytest.importorskip(
  'transformers', reason='tests/requirements-huggingface.txt has the packages'
)

COUNT, LENGTH = 60, 60


class Both:
  """A folder that the library has saved, the library's model, and this project's."""

  def __init__(self, folder, again, kind):
    by_hand = write_folder(folder, **KINDS[kind])
    self.hf_model, loading = transformers.MarianMTModel.from_pretrained(
      by_hand, output_loading_info=True
    )
    assert not any(loading.values()), loading
    self.kind = kind
    self.hf_model.save_pretrained(again)
    transformers.MarianTokenizer.from_pretrained(by_hand).save_pretrained(again)
    self.tokenizer = transformers.AutoTokenizer.from_pretrained(again)
    assert type(self.tokenizer) is transformers.MarianTokenizer
    self.config, self.vocabulary, self.params = huggingface_import.read_model(again)
    self.model = Transformer(
      self.config.model, self.vocabulary.target.size, self.vocabulary.source.size
    )
    self.sources, self.targets = (side[:COUNT] for side in known_text(by_hand))
    assert len(self.sources) == COUNT
    if 'codes' in KINDS[kind]:
      self.sources = [
        f'{CODES[number % 2]} {line}' for number, line in enumerate(self.sources)
      ]
    names = (
      'vocab.json',
      'target_vocab.json' if 'vocabulary each' in kind else 'vocab.json',
    )
    # The row of each piece in the library's tables.
    self.source_rows, self.target_rows = (
      json.loads((again / name).read_text('utf-8')) for name in names
    )

  def encoded(self):
    """Encodes sources and targets with `encode_batch`."""
    return (
      self.vocabulary.source.encode_batch(self.sources),
      self.vocabulary.target.encode_batch(self.targets),
    )

  def common_logits(self, ours_BTN, theirs_BTN):
    """Returns the logits of target pieces that have a row in both, where there are tokens."""
    pieces = {
      self.vocabulary.target.piece(token): token
      for token in range(self.vocabulary.target.size)
    }
    ids = [
      pieces.get(piece, pieces.get(f'▁{piece}'))
      for piece in self.target_rows
      if piece != '<pad>'
    ]
    # Nothing that the library may write is missing here.
    assert None not in ids and len(set(ids)) == len(ids)
    rows = [row for piece, row in self.target_rows.items() if piece != '<pad>']
    real_BT = self.batches()[1][1].astype(bool)
    return ours_BTN[real_BT][:, ids], theirs_BTN[real_BT][:, rows]

  def batches(self):
    """Returns a batch of sources and one of targets for this project."""
    sources, targets = self.encoded()
    return (
      padded([[*ids, EOS_ID] for ids in sources], LENGTH),
      padded([[BOS_ID, *ids] for ids in targets], LENGTH),
    )

  def their_logits(self):
    """Returns the library's logits of the same sentences."""
    sources = self.tokenizer(self.sources)['input_ids']
    targets = self.tokenizer(text_target=self.targets)['input_ids']
    start = self.hf_model.config.decoder_start_token_id
    real_BS = np.arange(LENGTH) < np.array([len(ids) for ids in sources])[:, None]
    return logits_of(
      self.hf_model,
      (padded(sources, LENGTH)[0], real_BS.astype(np.int32)),
      padded([[start, *ids[:-1]] for ids in targets], LENGTH),
    )


@pytest.fixture(scope='module', params=KINDS)
def both(request, tmp_path_factory):
  return Both(*map(tmp_path_factory.mktemp, ('hand', 'saved')), request.param)


def test_text_has_the_same_pieces(both):
  for side, lines, key in (
    ('source', both.sources, 'text'),
    ('target', both.targets, 'text_target'),
  ):
    theirs = both.tokenizer(**{key: lines})['input_ids']
    row_of, vocabulary = getattr(both, f'{side}_rows'), getattr(both.vocabulary, side)
    for line, wanted in zip(lines, theirs, strict=True):
      pieces = [vocabulary.piece(token) for token in vocabulary.encode(line)]
      rows = [
        row_of.get(
          piece, row_of.get(piece[1:] if '<<' in piece else piece, row_of['<unk>'])
        )
        for piece in pieces
      ]
      assert [*rows, row_of['</s>']] == wanted, line
      assert vocabulary.decode(vocabulary.encode(line)) == line


@pytest.mark.long(but=('two models',))
def test_logits_and_probabilities_are_the_same(both):
  x_BTD, output_ND = jax.jit(both.model.apply)(
    {'params': both.params}, *(array for batch in both.batches() for array in batch)
  )
  logits_BTN, theirs_BTN = (
    np.asarray(linear.logits(x_BTD, output_ND)),
    both.their_logits(),
  )
  assert theirs_BTN.std() > 0.3
  ours, theirs = both.common_logits(logits_BTN, theirs_BTN)
  np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
  # All but rounding comes from the first norms, whose epsilon cannot be made up for.
  norms = [
    stack.layers[0].self_attn_layer_norm
    for stack in (both.hf_model.model.encoder, both.hf_model.model.decoder)
  ]
  for norm in norms:
    norm.eps = 1e-6
  theirs_BTN = both.their_logits()
  for norm in norms:
    norm.eps = 1e-5
  np.testing.assert_allclose(
    *both.common_logits(logits_BTN, theirs_BTN), rtol=0, atol=1e-5
  )
  # Probabilities match the library without padding, which it never writes.
  theirs_BTN[..., both.hf_model.config.pad_token_id] = -np.inf
  np.testing.assert_allclose(
    *both.common_logits(*map(jax.nn.log_softmax, (logits_BTN, theirs_BTN))),
    rtol=0,
    atol=1e-5,
  )


@pytest.mark.long
def test_an_export_has_the_same_logits_in_the_library(both, tmp_path):
  huggingface_format.write_model(tmp_path, both.config, both.params, both.vocabulary)
  again, loading = transformers.AutoModelForSeq2SeqLM.from_pretrained(
    tmp_path, output_loading_info=True
  )
  assert not any(loading.values()), loading
  tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
  np.testing.assert_allclose(
    *both.common_logits(logits_of(again, *both.batches()), both.their_logits()),
    rtol=0,
    atol=1e-5,
  )
  sources, targets = ([[*ids, EOS_ID] for ids in side] for side in both.encoded())
  assert 'codes' in KINDS[both.kind] or tokenizer(both.sources)['input_ids'] == sources
  assert tokenizer(text_target=both.targets)['input_ids'] == targets
  assert tokenizer.batch_decode(targets, skip_special_tokens=True) == both.targets
  assert tokenizer.pad_token_id == PAD_ID == again.config.pad_token_id
  back = huggingface_import.read_model(tmp_path)
  assert back.config.model == both.config.model
  for path, leaf in jax.tree_util.tree_leaves_with_path(back.params):
    wanted = dict(jax.tree_util.tree_leaves_with_path(both.params))[path]
    np.testing.assert_allclose(leaf, wanted, rtol=3e-7, err_msg=str(path))
