"""A MarianMT folder shaped like the published models computes here what the library computes.

tests/huggingface.txt has the packages.
"""

import json
import operator

import jax
import numpy as np
import pytest

from tests.tools.convert.marian_folders import CODES, KINDS, known_text, write_folder
from tests.tools.convert.random_models import padded
from tests.toy_translation import whole_search
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.data.vocabulary.vocabulary import BYTE_IDS
from transformer.decoding.config import DecodeConfig
from transformer.model.transformer import Transformer
from transformer.ops import linear
from transformer.tools.convert import huggingface_format, huggingface_reading

torch = pytest.importorskip('torch', reason='tests/huggingface.txt has the packages')
transformers = pytest.importorskip('transformers', reason='tests/huggingface.txt has the packages')

COUNT, LONGEST, EXTRA = 60, 64, 13


class Both:
  """A folder that the library has saved, the library's model, and this project's."""

  def __init__(self, folder, again, kind, strength):
    by_hand = write_folder(folder, strength, **KINDS[kind])
    self.peer, loading = transformers.MarianMTModel.from_pretrained(
        by_hand, output_loading_info=True)
    assert not any(loading.values()), loading
    self.folder, self.kind = again, kind
    self.peer.save_pretrained(again)
    transformers.MarianTokenizer.from_pretrained(by_hand).save_pretrained(again)
    self.tokenizer = transformers.AutoTokenizer.from_pretrained(again)
    assert type(self.tokenizer) is transformers.MarianTokenizer
    self.config, self.vocabulary, self.params = huggingface_reading.read_model(again)
    self.model = Transformer(self.config.model, self.vocabulary.target.size,
                             self.vocabulary.source.size)
    self.sources, self.targets = (each[:COUNT] for each in known_text(by_hand))
    assert len(self.sources) == COUNT
    if 'codes' in KINDS[kind]:
      self.sources = [f'{CODES[number % 2]} {line}' for number, line in enumerate(self.sources)]

  def rows(self):
    """Returns the ids of the target's pieces that have a row here, and those rows."""
    name = 'target_vocab.json' if 'vocabulary each' in self.kind else 'vocab.json'
    row_of = json.loads((self.folder / name).read_text('utf-8'))
    pieces = {self.vocabulary.target.piece(token): token
              for token in range(self.vocabulary.target.size)}
    ids = [pieces.get(piece, pieces.get(f'▁{piece}')) for piece in row_of if piece != '<pad>']
    # Nothing that the library may write is missing here.
    assert None not in ids and len(set(ids)) == len(ids)
    return ids, [row for piece, row in row_of.items() if piece != '<pad>']


@pytest.fixture(scope='module', params=KINDS)
def both(request, tmp_path_factory):
  return Both(tmp_path_factory.mktemp('hand'), tmp_path_factory.mktemp('saved'), request.param,
              1.0)


@pytest.fixture(scope='module', params=KINDS)
def mild(request, tmp_path_factory):
  """Returns a pair whose rounding errors stay small."""
  return Both(tmp_path_factory.mktemp('hand'), tmp_path_factory.mktemp('saved'), request.param,
              0.5)


def logits_of(peer, sources, targets):
  """Returns the library's logits for two lists of ids, by padded batches."""
  with torch.no_grad():
    return peer(input_ids=torch.tensor(sources[0]), attention_mask=torch.tensor(sources[1]),
                decoder_input_ids=torch.tensor(targets[0])).logits.numpy()


def forced(both, lines):
  """Returns batches of ids of both, for the library and for this project."""
  sources = both.tokenizer([lines[0] for lines in lines])['input_ids']
  targets = both.tokenizer(text_target=[lines[1] for lines in lines])['input_ids']
  start = both.peer.config.decoder_start_token_id
  theirs = [padded(sources, 60), padded([[start, *each[:-1]] for each in targets], 60)]
  lengths = [np.arange(60) < np.array([len(each) for each in side])[:, None]
             for side in (sources, targets)]
  theirs = [(tokens, real.astype(np.int32), places)
            for (tokens, _, places), real in zip(theirs, lengths, strict=True)]
  vocabulary = both.vocabulary
  ours = [padded([[*ids, EOS_ID] for ids in vocabulary.source.encode_batch(
              [line for line, _ in lines])], 60),
          padded([[BOS_ID, *ids] for ids in vocabulary.target.encode_batch(
              [line for _, line in lines])], 60)]
  return theirs, ours


def test_text_is_cut_into_the_same_pieces(both):
  for side, lines, key in (('source', both.sources, 'text'),
                           ('target', both.targets, 'text_target')):
    theirs = both.tokenizer(**{key: lines})['input_ids']
    name = 'target_vocab.json' if side == 'target' and 'vocabulary each' in both.kind else (
        'vocab.json')
    row_of = json.loads((both.folder / name).read_text('utf-8'))
    vocabulary = getattr(both.vocabulary, side)
    for line, wanted in zip(lines, theirs, strict=True):
      pieces = [vocabulary.piece(token) for token in vocabulary.encode(line)]
      found = [row_of.get(piece, row_of.get(piece[1:] if '<<' in piece else piece, row_of['<unk>']))
               for piece in pieces]
      assert [*found, row_of['</s>']] == wanted, line
      assert vocabulary.decode(vocabulary.encode(line)) == line


@pytest.mark.long(but=('two models',))
def test_logits_and_probabilities_are_the_same(mild):
  lines = list(zip(mild.sources, mild.targets, strict=True))
  theirs, ours = forced(mild, lines)
  wanted_BTN = logits_of(mild.peer, *theirs)
  x_BTD, output_ND = jax.jit(mild.model.apply)({'params': mild.params}, *ours[0], *ours[1])
  found_BTN = np.asarray(linear.logits(x_BTD, output_ND))
  real_BT = ours[1][1].astype(bool)
  np.testing.assert_array_equal(real_BT, theirs[1][1].astype(bool))
  assert wanted_BTN.std() > 0.3
  ids, rows = mild.rows()
  found, wanted = found_BTN[real_BT][:, ids], wanted_BTN[real_BT][:, rows]
  np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
  # All but rounding comes from the first norms, whose epsilon cannot be made up for.
  for stack in (mild.peer.model.encoder, mild.peer.model.decoder):
    stack.layers[0].self_attn_layer_norm.eps = 1e-6
  wanted_BTN = logits_of(mild.peer, *theirs)
  for stack in (mild.peer.model.encoder, mild.peer.model.decoder):
    stack.layers[0].self_attn_layer_norm.eps = 1e-5
  np.testing.assert_allclose(found, wanted_BTN[real_BT][:, rows], rtol=0, atol=1e-5)
  # Probabilities are those of the library without padding, which it never writes.
  wanted_BTN[..., mild.peer.config.pad_token_id] = -np.inf
  np.testing.assert_allclose(jax.nn.log_softmax(found_BTN)[real_BT][:, ids],
                             jax.nn.log_softmax(wanted_BTN)[real_BT][:, rows], rtol=0, atol=1e-5)


@pytest.mark.long(but=('two models-1-1.0',))
@pytest.mark.parametrize(('beam_size', 'share'), [(1, 1.0), (4, 0.95)])
def test_translations_are_the_same(both, beam_size, share):
  batch = both.tokenizer(both.sources, padding=True, return_tensors='pt')
  most = batch['input_ids'].shape[1] + EXTRA
  vocabulary = both.vocabulary
  source_BS = padded([[*ids, EOS_ID] for ids in vocabulary.source.encode_batch(both.sources)],
                     batch['input_ids'].shape[1])[0]
  best = jax.device_get(whole_search(both.model, DecodeConfig(
      beam_size=beam_size, alpha=0.0, max_extra_length=EXTRA))(
          both.params, source_BS, np.full(COUNT, most, np.int32)))
  ours = [[vocabulary.target.piece(token) for token in tokens[:length]]
          for tokens, length in zip(best.tokens[:, 0], best.lengths[:, 0], strict=True)]
  search = {'length_penalty': 0.0, 'early_stopping': True} if beam_size > 1 else {
      'length_penalty': 1.0, 'early_stopping': False}
  both.peer.generation_config.forced_eos_token_id = None
  both.peer.generation_config.bad_words_ids = [[both.peer.config.pad_token_id]]
  found = both.peer.generate(**batch, num_beams=beam_size, max_length=1 + most, **search)
  theirs = [both.tokenizer.convert_ids_to_tokens(tokens[1:]) for tokens in found.tolist()]

  def cut(pieces):
    bare = [piece.removeprefix('▁') if '<<' in piece else piece for piece in pieces]
    return bare[:bare.index('</s>')] if '</s>' in bare else bare[:most]

  same = sum(map(operator.eq, map(cut, ours), map(cut, theirs)))
  assert same >= share * COUNT
  assert len({tuple(cut(each)) for each in ours}) > 2
  written = {token for tokens in best.tokens[:, 0] for token in tokens.tolist()}
  assert not written & {BOS_ID, *BYTE_IDS}


@pytest.mark.long
def test_an_export_gives_the_library_the_same_logits(mild, tmp_path):
  huggingface_format.write_model(tmp_path, mild.config, mild.params, mild.vocabulary)
  again, loading = transformers.AutoModelForSeq2SeqLM.from_pretrained(
      tmp_path, output_loading_info=True)
  assert not any(loading.values()), loading
  tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
  lines = list(zip(mild.sources, mild.targets, strict=True))
  theirs, ours = forced(mild, lines)
  ids, rows = mild.rows()
  real_BT = ours[1][1].astype(bool)
  np.testing.assert_allclose(logits_of(again, *ours)[real_BT][:, ids],
                             logits_of(mild.peer, *theirs)[real_BT][:, rows], rtol=0, atol=1e-5)
  if 'codes' not in KINDS[mild.kind]:
    encoded = tokenizer(mild.sources)['input_ids']
    assert encoded == [[*each, EOS_ID] for each in mild.vocabulary.source.encode_batch(
        mild.sources)]
  encoded = tokenizer(text_target=mild.targets)['input_ids']
  assert encoded == [[*each, EOS_ID] for each in mild.vocabulary.target.encode_batch(mild.targets)]
  assert tokenizer.batch_decode(encoded, skip_special_tokens=True) == mild.targets
  assert tokenizer.pad_token_id == PAD_ID == again.config.pad_token_id
  found = huggingface_reading.read_model(tmp_path)
  assert found.config.model == mild.config.model
  for path, leaf in jax.tree_util.tree_leaves_with_path(found.params):
    wanted = dict(jax.tree_util.tree_leaves_with_path(mild.params))[path]
    np.testing.assert_allclose(leaf, wanted, rtol=3e-7, err_msg=str(path))
