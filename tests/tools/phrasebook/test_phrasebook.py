"""The French is correct and a function of the English, and the splits do not leak."""

import collections
import hashlib
import re
from random import Random

import pytest

from transformer.data.config import DataConfig
from transformer.data.text.sources import open_corpus
from transformer.errors import UserError
from transformer.tools.phrasebook import SIZES, held_out, pairs_of
from transformer.tools.phrasebook.lexicon import ADJECTIVES, NOUNS
from transformer.tools.phrasebook.sentences import SentenceSampler

DIGESTS = {
  'train': 'f53fc9d994df56b0',
  'validation': '1986c12f5ada6123',
  'test': '934d8a152eb9dfd2',
}
# Agreement, liaison, negation, pronouns before the verb, participles and contractions.
KNOWN = {
  'He saw her.': "Il l'a vue.",
  'He helped us.': 'Il nous a aidés.',
  "His old teacher didn't find the cats.": "Son vieux professeur n'a pas trouvé les chats.",
  'Our beautiful baker loved them.': 'Notre beau boulanger les a adorés.',
  'He took my apples and showed them to her': 'Il a pris mes pommes et les lui a montrées',
  'These strange mothers must open the hospitals.': (
    'Ces mères étranges doivent ouvrir les hôpitaux.'
  ),
  'Yesterday, our mice arrived.': 'Hier, nos souris sont arrivées.',
  'Did some dogs not find a big church?': (
    "Est-ce que des chiens n'ont pas trouvé de grande église ?"
  ),
  'The boy and your English doctor give the shirt to some children.': (
    'Le garçon et votre médecin anglais donnent la chemise à des enfants.'
  ),
  'The old expensive egg is new.': 'Le vieil œuf cher est nouveau.',
  'Every day, you do not have an expensive bed.': "Tous les jours, vous n'avez pas de lit cher.",
  'Where is the old park?': 'Où est le vieux parc ?',
  "An old cow won't sleep.": 'Une vieille vache ne va pas dormir.',
  "I can't come": 'Je ne peux pas venir',
  'they came': 'ils sont venus',
  'Paul and Louis come.': 'Paul et Louis viennent.',
}
SOURCE = 'transformer.tools.phrasebook:Phrasebook'


@pytest.fixture(scope='module')
def corpus():
  return {split: pairs_of(split) for split in SIZES}


def test_splits_have_their_sizes_and_share_no_sentence(corpus):
  assert {split: len(pairs) for split, pairs in corpus.items()} == SIZES
  sentences = [english for pairs in corpus.values() for english, _ in pairs]
  assert len(sentences) == len(set(sentences)) == sum(SIZES.values())


def test_the_french_is_a_function_of_the_english():
  writer, french = SentenceSampler(Random(0)), {}
  for english, translation in (writer.sentence() for _ in range(20_000)):
    assert french.setdefault(english, translation) == translation
  assert len(french) < 19_900  # Some came twice.


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
    return collections.Counter(
      word
      for pair in pairs
      for sentence in pair
      for word in re.findall(r"[^\s'.?,]+", sentence.lower())
    )

  counts = words(corpus['train'])
  for split in ('validation', 'test'):
    assert min(counts[word] for word in words(corpus[split])) >= 5


def test_a_config_names_it_in_either_order():
  forth = open_corpus(DataConfig(source=SOURCE), 'validation')
  back = open_corpus(
    DataConfig(source=SOURCE, source_language='fr', target_language='en'), 'validation'
  )
  assert [pair[::-1] for pair in back[:9]] == forth[:9] == pairs_of('validation')[:9]
  assert len(forth) == 500 and forth.fingerprint != back.fingerprint
  with pytest.raises(
    UserError, match="splits train, validation, test in en and fr; got 'valid'"
  ):
    open_corpus(DataConfig(source=SOURCE), 'valid')
  with pytest.raises(UserError, match=r'in en and fr; .*target_language=de'):
    open_corpus(DataConfig(source=SOURCE, target_language='de'), 'train')


def test_the_sentences_stay_as_they_are(corpus):  # Figures in docs are about these.
  digests = {
    split: hashlib.sha256(repr(pairs).encode()).hexdigest()[:16]
    for split, pairs in corpus.items()
  }
  assert digests == DIGESTS
  french = dict(pair for pairs in corpus.values() for pair in pairs)
  assert {english: french.get(english) for english in KNOWN} == KNOWN
