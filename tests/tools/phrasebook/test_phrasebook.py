"""The French is correct and a function of the English, and the splits do not leak."""

import collections
import hashlib
import re

import pytest

from transformer.data.config import DataConfig
from transformer.data.text.sources import open_corpus
from transformer.errors import UserError
from transformer.tools.phrasebook import SIZES, held_out, pairs_of
from transformer.tools.phrasebook.words import ADJECTIVES, NOUNS

DIGESTS = {'train': '587f4957bacfff23', 'validation': '46ed2c4d97a83684',
           'test': '42a5804b0060ccb0'}
# Agreement, liaison, negation, pronouns before the verb, participles and contractions.
KNOWN = {
    'He saw her.': "Il l'a vue.", 'He helped us.': 'Il nous a aidés.',
    'She did not find the clean horse.': "Elle n'a pas trouvé le cheval propre.",
    'They gave three cars to the baker.': 'Ils ont donné trois voitures au boulanger.',
    'He took the cars and showed them to her.': 'Il a pris les voitures et les lui a montrées.',
    'They will open the hospitals.': 'Ils vont ouvrir les hôpitaux.',
    'Is the door red?': 'Est-ce que la porte est rouge ?', 'I am ill.': 'Je suis malade.',
    'This old ill cow liked her.': "Cette vieille vache malade l'a aimée.",
    'The ill sisters arrived.': 'Les sœurs malades sont arrivées.',
    'He is near a hotel.': "Il est près d'un hôtel.",
    'A brother and a father sleep on Sundays.': 'Un frère et un père dorment le dimanche.',
    'Marie showed a cat to some children.': 'Marie a montré un chat à des enfants.',
    'We must wash his old egg.': 'Nous devons laver son vieil œuf.',
    'My strange friends do not open an expensive bottle.':
        "Mes amis étranges n'ouvrent pas de bouteille chère.",
    'Marie slept near some doors.': 'Marie a dormi près de portes.',
    'Where is a dog?': 'Où est un chien ?'}
SOURCE = 'transformer.tools.phrasebook:Phrasebook'


@pytest.fixture(scope='module')
def corpus():
  return {split: pairs_of(split) for split in SIZES}


def test_splits_have_their_sizes_and_share_no_sentence(corpus):
  assert {split: len(pairs) for split, pairs in corpus.items()} == SIZES
  sentences = [english for pairs in corpus.values() for english, _ in pairs]
  assert len(sentences) == len(set(sentences)) == sum(SIZES.values())


def pairings_in_text(english):
  """Yields the (adjective, noun) pairs in adjacent words, without the grammar."""
  adjectives = {adjective.en for adjective in ADJECTIVES}
  forms = {form: noun.en for noun in NOUNS for form in (noun.en, noun.en_plural)}
  words = re.findall(r"[\w']+", english[0].lower() + english[1:])
  for place, word in enumerate(words):
    before = place - 1
    while word in forms and before >= 0 and words[before] in adjectives:
      yield words[before], forms[word]
      before -= 1


def test_training_shows_no_held_out_pair_and_each_word_often(corpus):
  shown = {pair for english, _ in corpus['train'] for pair in pairings_in_text(english)}
  assert len(shown) > 500 and not any(map(held_out, shown))

  def words(pairs):
    return collections.Counter(word for pair in pairs for sentence in pair for word in re.findall(
        r"[^\s'.?,]+", sentence.lower()))

  counts = words(corpus['train'])
  for split in ('validation', 'test'):
    assert min(counts[word] for word in words(corpus[split])) >= 5


def test_a_config_names_it_in_either_order():
  forth = open_corpus(DataConfig(source=SOURCE), 'validation')
  back = open_corpus(DataConfig(source=SOURCE, source_language='fr', target_language='en'),
                     'validation')
  assert [pair[::-1] for pair in back[:9]] == forth[:9] == pairs_of('validation')[:9]
  assert len(forth) == 500 and forth.fingerprint != back.fingerprint
  with pytest.raises(UserError, match="splits train, validation, test in en and fr; got 'valid'"):
    open_corpus(DataConfig(source=SOURCE), 'valid')
  with pytest.raises(UserError, match=r'in en and fr; .*target_language=de'):
    open_corpus(DataConfig(source=SOURCE, target_language='de'), 'train')


def test_the_sentences_stay_as_they_are(corpus):  # Figures in docs are about these.
  digests = {split: hashlib.sha256(repr(pairs).encode()).hexdigest()[:16]
             for split, pairs in corpus.items()}
  assert digests == DIGESTS
  french = dict(pair for pairs in corpus.values() for pair in pairs)
  assert {english: french.get(english) for english in KNOWN} == KNOWN
