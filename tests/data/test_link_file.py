"""Links between words become links between the tokens of the same words, in every batch."""

import chex
import numpy as np
import pytest

from transformer.data import encoding
from transformer.data.batches import Shape, TrainingBatches
from transformer.data.encoded_cache import load_or_encode
from transformer.data.encoding import encode_for_training
from transformer.data.link_file import LinkFile, link_tokens
from transformer.data.sources import TextCorpus
from transformer.data.vocabularies import SeparateVocabularies
from transformer.data.vocabulary import Vocabulary
from transformer.data.word_parts import word_parts
from transformer.errors import UserError

WORDS = ['man', 'dog', 'red', 'shirt', 'mann', 'hund', 'rot', 'hemd', 'läuft', 'runs', 'über']
MAX_LENGTH = 19
SHAPE = Shape(3, 29, MAX_LENGTH)


def text(count, seed):
  rng = np.random.default_rng(seed)
  return [' '.join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(count)]


def write(folder, source, target, links):
  for ending, lines in (('en', source), ('de', target), ('links', links)):
    (folder / f'train.{ending}').write_text(''.join(f'{line}\n' for line in lines),
                                            encoding='utf-8')


def links_between(source, target, seed=3):
  """Returns some random links of each pair."""
  rng = np.random.default_rng(seed)
  return [' '.join(f'{i}{"-?p"[rng.integers(3)]}{j}' for i in range(len(one.split()))
                   for j in range(len(other.split())) if rng.random() < 0.25)
          for one, other in zip(source, target, strict=True)]


@pytest.fixture(scope='module')
def vocabulary():
  return SeparateVocabularies(*(Vocabulary.train(text(300, seed), 300 + seed) for seed in (8, 9)))


@pytest.fixture
def folder(tmp_path):
  source, target = [*text(61, 1), '', 'dog ' * 30, 'dog'], [*text(61, 2), 'hund', 'hund', '']
  write(tmp_path, source, target, links_between(source, target))
  return tmp_path


def opened(folder):
  corpus = TextCorpus(folder / 'train', 'en', 'de')
  return corpus, LinkFile(f'{folder}/train.links', corpus)


def encoded(folder, vocabulary, load=encode_for_training, **limits):
  corpus, links = opened(folder)
  return load(corpus, vocabulary, MAX_LENGTH, links=links, **limits)


def test_tokens_are_linked_whose_words_are():
  in_source_SI = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]], bool)
  in_target_TJ = np.array([[1, 0], [0, 1], [0, 1], [0, 0]], bool)
  np.testing.assert_array_equal(link_tokens({(0, 1), (2, 0)}, in_source_SI, in_target_TJ),
                                [[0, 3], [1, 0], [1, 1], [2, 0], [2, 1]])
  assert link_tokens([], in_source_SI, in_target_TJ).shape == (0, 2)
  assert link_tokens([], np.zeros((0, 0), bool), in_target_TJ).shape == (0, 2)


def wanted_links(folder, vocabulary):
  """Returns the linked tokens of each pair by its ids, token by token."""
  wanted = {}
  lines = [(folder / f'train.{each}').read_text('utf-8').splitlines()
           for each in ('en', 'de', 'links')]
  for source, target, line in zip(*lines, strict=True):
    links = {tuple(map(int, each.replace('?', '-').replace('p', '-').split('-')))
             for each in line.split()}
    ids = vocabulary.source.encode(source), vocabulary.target.encode(target)
    in_source, in_target = (
        word_parts([language.piece_bytes(token) for token in side])
        for language, side in zip((vocabulary.source, vocabulary.target), ids, strict=True))
    places = {(t, s) for s in range(len(ids[0])) for t in range(len(ids[1]))
              if any(in_source[s, i] and in_target[t, j] for i, j in links)}
    wanted.setdefault(tuple(map(tuple, ids)), []).append(places)
  return wanted


@pytest.mark.parametrize('load', [encode_for_training, load_or_encode])
def test_a_batch_has_the_links_of_its_pairs_and_no_others(folder, vocabulary, load, monkeypatch):
  monkeypatch.setattr(encoding, '_CHUNK', 17)
  pairs = encoded(folder, vocabulary, load)
  assert pairs.counts['dropped: source too long'] and pairs.counts['dropped: empty side']
  wanted, seen = wanted_links(folder, vocabulary), 0
  batches = TrainingBatches([pairs, pairs], [1.0, 2.0], SHAPE, 0)
  for step in range(batches.batches_in_epoch):
    batch, left = batches[step], batches[step].links.copy()
    chex.assert_shape(left, (3, MAX_LENGTH, 29))
    chex.assert_type(left, bool)
    for row, segments in enumerate(batch.target_segments):
      for segment in range(1, segments.max() + 1):
        t, s = (np.flatnonzero(side[row] == segment)
                for side in (batch.target_segments, batch.source_segments))
        key = (tuple(batch.source_tokens[row][s][:-1]), tuple(batch.target_tokens[row][t][:-1]))
        found = {tuple(place) for place in np.argwhere(left[row][np.ix_(t, s)])}
        assert found in wanted[key]
        seen += len(found)
        left[row][np.ix_(t, s)] = False
    assert not left.any()
  assert seen


def test_links_on_disk_are_those_in_memory_and_changed_ones_are_noticed(folder, vocabulary):
  for limits in ({}, {'max_length_ratio': 1.5, 'drop_duplicates': True}):
    pairs = [encoded(folder, vocabulary, load, **limits)
             for load in (encode_for_training, load_or_encode, load_or_encode)]
    assert len(pairs[0].links) == len(pairs[0]) == pairs[0].counts['kept'] > 20
    for found in pairs[1:]:
      assert [found.links[i].tolist() for i in range(len(found))] == [
          pairs[0].links[i].tolist() for i in range(len(found))]
  corpus, links = opened(folder)
  before = links.fingerprint
  lines = (folder / 'train.links').read_text('utf-8').splitlines()
  (folder / 'train.links').write_text('\n'.join(['', *lines[1:]]) + '\n', encoding='utf-8')
  assert opened(folder)[1].fingerprint != before
  found = encoded(folder, vocabulary, load_or_encode)
  assert not len(found.links[0]) and len(encoded(folder, vocabulary).links[0]) == 0
  # Without links, the same text has its own encoding.
  assert load_or_encode(corpus, vocabulary, MAX_LENGTH).links is None
  encodings = [path for path in folder.glob('encoded/*') if path.suffix != '.lock']
  on_disk = list(folder.glob('encoded/*/links_lengths.npy'))
  assert (len(encodings), len(on_disk)) == (3, 2)
  for path in on_disk:
    path.unlink()
  with pytest.raises(UserError, match=r'links_lengths\.npy cannot be read'):
    encoded(folder, vocabulary, load_or_encode)


@pytest.mark.parametrize(('line', 'message'), [
    ('0-0 1-0', r'train\.links:62: the link 1-0 must join one of the 1 words of the source to one '
                r'of the 1 of the target'),
    ('0-1', r'train\.links:62: the link 0-1 must join'),
    ('0:0', r"train\.links:62: a link must be I-J .* got '0:0'"),
    ('1-1-1', r'train\.links:62: a link must be I-J')])
@pytest.mark.parametrize('load', [encode_for_training, load_or_encode])
def test_a_link_outside_its_pair_is_refused_by_file_and_line(folder, vocabulary, line, message,
                                                             load, monkeypatch):
  monkeypatch.setattr(encoding, '_CHUNK', 17)
  source, target = [*text(61, 1), 'dog'], [*text(61, 2), 'hund']
  write(folder, source, target, [*links_between(source, target)[:-1], line])
  with pytest.raises(UserError, match=message):
    encoded(folder, vocabulary, load)


def test_a_missing_file_and_one_of_another_length_are_refused(folder):
  corpus, _ = opened(folder)
  with pytest.raises(UserError, match=r'wanted the file .*train\.lonks; .* holds train\.links'):
    LinkFile(f'{folder}/train.lonks', corpus)
  (folder / 'train.links').write_text('0-0\n', encoding='utf-8')
  with pytest.raises(UserError, match='a line for each pair of sentences; .*train has 64 pairs, '
                                      r'.*train\.links has 1 lines'):
    opened(folder)
