"""A run has one vocabulary for both languages, or one for each."""

import pytest
import sentencepiece

from transformer.data.config import DataConfig
from transformer.data.corpora import Corpora
from transformer.data.vocabulary import vocabularies
from transformer.data.vocabulary.building import build_vocabulary
from transformer.data.vocabulary.vocabularies import SeparateVocabularies
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

PAIRS = [
  ('two dogs run through wet grass', 'два пса бегут по мокрой траве'),
  ('a woman sits on a bench', 'женщина сидит на скамейке'),
  ('the child eats an apple', 'ребёнок ест яблоко'),
] * 4
SIZES = {'vocabulary_size': 310, 'source_vocabulary_size': 300}
SEPARATE = {'shared_vocabulary': False, **SIZES}


@pytest.fixture(scope='module')
def corpora():
  return Corpora({'a': PAIRS}, {})


@pytest.fixture(scope='module')
def separate(corpora):
  return build_vocabulary(DataConfig(**SEPARATE), corpora)


@pytest.fixture(scope='module')
def shared(corpora):
  return build_vocabulary(DataConfig(vocabulary_size=330), corpora)


@pytest.fixture(params=['shared', 'separate'])
def either(request):
  return request.getfixturevalue(request.param)


def test_each_vocabulary_is_trained_only_on_its_language(separate, shared):
  assert (separate.source.size, separate.target.size, shared.target.size) == (
    300,
    310,
    330,
  )
  for side, vocabulary in enumerate(separate):
    alone = Vocabulary.train([pair[side] for pair in PAIRS], vocabulary.size)
    assert alone.model_bytes == vocabulary.model_bytes
  assert shared.source is shared.target is shared
  assert vocabularies.is_shared(shared) and not vocabularies.is_shared(separate)


def test_files_and_bytes_give_the_same_vocabularies_back(either, tmp_path):
  vocabularies.save(either, tmp_path)
  models = vocabularies.model_files(either)
  assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == models
  for copy in (
    vocabularies.load(tmp_path),
    vocabularies.load(tmp_path, vocabularies.fingerprints(either)),
    vocabularies.from_model_files(models, 'here'),
  ):
    assert vocabularies.is_shared(copy) == vocabularies.is_shared(either)
    for side in ('source', 'target'):
      assert getattr(copy, side).model_bytes == getattr(either, side).model_bytes


def test_exchanged_or_foreign_files_are_rejected(separate, shared, tmp_path):
  wanted = vocabularies.fingerprints(separate)
  vocabularies.save(SeparateVocabularies(separate.target, separate.source), tmp_path)
  with pytest.raises(
    UserError, match=r'vocabulary\.source\.model .* was replaced since the run'
  ):
    vocabularies.load(tmp_path, wanted)
  vocabularies.save(shared, tmp_path)  # The files of the other kind do not count.
  assert (
    vocabularies.load(tmp_path, vocabularies.fingerprints(shared)).target.size == 330
  )
  with pytest.raises(UserError, match='SHA-256 should be None;'):
    vocabularies.load(tmp_path, {'vocabulary.source': separate.target.fingerprint})
  (tmp_path / 'vocabulary.model').unlink()
  with pytest.raises(UserError, match=r'vocabulary\.model cannot be read'):
    vocabularies.load(tmp_path, vocabularies.fingerprints(shared))


@pytest.mark.parametrize(
  'names',
  [(), ('vocabulary.source.model',), ('vocabulary.model', 'vocabulary.target.model')],
)
def test_models_with_other_names_are_rejected(shared, names):
  with pytest.raises(
    UserError,
    match=r'x should contain vocabulary\.model, or '
    r'vocabulary\.source\.model and vocabulary\.target\.model; it contains',
  ):
    vocabularies.from_model_files(dict.fromkeys(names, shared.model_bytes), 'x')


def test_a_named_file_is_taken_for_its_side_and_the_other_is_learned(
  corpora, separate, tmp_path
):
  separate.source.save(tmp_path / 'en')
  made = build_vocabulary(
    DataConfig(**SEPARATE, source_vocabulary=str(tmp_path / 'en')), corpora
  )
  assert vocabularies.fingerprints(made) == vocabularies.fingerprints(separate)
  for key, size in (('source_vocabulary', 310), ('vocabulary', 311)):
    config = {**SEPARATE, f'{key}_size': size, key: str(tmp_path / 'en')}
    with pytest.raises(
      UserError,
      match=rf'vocabulary comes from data\.{key}; set '
      rf'--config\.data\.{key}_size=300; got {size}',
    ):
      build_vocabulary(DataConfig(**config), corpora)


def test_earlier_vocabularies_are_kept(corpora, separate, shared):
  assert build_vocabulary(DataConfig(vocabulary_size=330), corpora, shared) is shared
  source, target = build_vocabulary(DataConfig(**SEPARATE), corpora, separate)
  assert source is separate.source and target is separate.target
  for config, earlier in ((DataConfig(**SEPARATE), shared), (DataConfig(), separate)):
    with pytest.raises(
      UserError,
      match='from train.init_from; set --config.data.shared_vocabular'
      rf'y={not config.shared_vocabulary}; got {config.shared_vocabulary}',
    ):
      build_vocabulary(config, corpora, earlier)


@pytest.mark.parametrize('key', ['source_vocabulary_size', 'vocabulary_size'])
def test_a_size_that_a_side_cannot_fill_names_the_key_of_that_side(corpora, key):
  with pytest.raises(UserError, match=rf'set --config\.data\.{key} to at most'):
    build_vocabulary(DataConfig(**{**SEPARATE, key: 4000}), corpora)


def test_an_earlier_vocabulary_without_merges_drops_none(corpora, tmp_path):
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter([side for pair in PAIRS for side in pair]),
    vocab_size=310,
    model_prefix=str(tmp_path / 'unigram'),
    model_type='unigram',
    byte_fallback=True,
    normalization_rule_name='identity',
    remove_extra_whitespaces=False,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    minloglevel=2,
    hard_vocab_limit=False,
  )
  earlier = Vocabulary.load(tmp_path / 'unigram.model')
  config = DataConfig(vocabulary_size=earlier.size)
  assert build_vocabulary(config, corpora, earlier) is earlier
