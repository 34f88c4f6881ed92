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
from transformer.tools.phrasebook.grammar import Nominal, Phrase, clause, noun_phrase, spell
from transformer.tools.phrasebook.sentences import Writer
from transformer.tools.phrasebook.words import ADJECTIVES, NOUNS, VERBS

NOUN, ADJECTIVE, VERB = ({word.en: word for word in words} for words in (NOUNS, ADJECTIVES, VERBS))
SHE, MARIE = Nominal('she', 'elle', gender='f'), Nominal('Marie', 'Marie', gender='f')
THEY, I = Nominal('they', 'ils', 4), Nominal('I', 'je', 0)
VOWEL = '[aeiouyhàâéèêîôœ]'
SOURCE = 'transformer.tools.phrasebook:Phrasebook'


@pytest.fixture(scope='module')
def corpus():
  return {split: pairs_of(split) for split in SIZES}


def np(noun, determiner='the', *adjectives, plural=False, negated=False):
  return noun_phrase(NOUN[noun], determiner, [ADJECTIVE[adjective] for adjective in adjectives],
                     plural, negated)


def test_french_is_a_function_of_english():
  writer, french = Writer(Random('many')), {}
  for _ in range(20_000):
    english, translation = writer.sentence()
    assert french.setdefault(english, translation) == translation


def test_splits_have_their_sizes_and_share_no_sentence(corpus):
  assert {split: len(pairs) for split, pairs in corpus.items()} == SIZES
  sentences = [english for pairs in corpus.values() for english, _ in pairs]
  assert len(sentences) == len(set(sentences)) == sum(SIZES.values())


def pairings_in_text(english):
  """Yields the (adjective, noun) pairs in adjacent words, without the grammar."""
  forms = {form: noun.en for noun in NOUNS for form in (noun.en, noun.en_plural)}
  words = re.findall(r"[\w']+", english[0].lower() + english[1:])
  for place, word in enumerate(words):
    before = place - 1
    while word in forms and before >= 0 and words[before] in ADJECTIVE:
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


NEVER_FRENCH = [
    r'\b(de|à) les?\b(?! lui| leur)', rf"\b(le|la|je|ne|de|que|me|ma|sa|ce) {VOWEL}",
    rf'\b(beau|vieux|nouveau) {VOWEL}\w+(?<!s)(?<!x)\b', r"\w' ", r"'(?!" + VOWEL + ')',
    r'  ', r' [,.]', r'[^ ]\?$', r'\bdes (petite?s|grande?s|beaux|belles)', r'\bpas (un|une|des)\b']
NEVER_ENGLISH = [
    r'\ba [aeiou]', r'\ban [^aeiou]', r'\bcan not\b', r'  ', r' [,.?]', r'\b(they|we|you) is\b']


def test_spelling_has_no_forms_that_grammar_excludes(corpus):
  for side, patterns in enumerate((NEVER_ENGLISH, NEVER_FRENCH)):
    wrong = re.compile('|'.join(patterns), re.IGNORECASE)
    for pairs in corpus.values():
      assert not [pair for pair in pairs if wrong.search(pair[side])]


def test_the_sentences_stay_as_they_are(corpus):
  """Figures in docs and benchmarks are about these."""
  assert hashlib.sha256(repr(corpus['test']).encode()).hexdigest()[:16] == 'eb0549606ffb1a26'


@pytest.mark.parametrize(('phrase', 'english', 'french'), [
    # Agreement of determiner, noun and adjectives; irregular forms; before a vowel.
    (clause(THEY, VERB['see']) + np('apple', 'the', 'big', 'green', plural=True),
     'They see the big green apples.', 'Ils voient les grandes pommes vertes.'),
    (clause(I, VERB['buy']) + np('hotel', 'a', 'beautiful', 'expensive'),
     'I buy a beautiful expensive hotel.', "J'achète un bel hôtel cher."),
    (clause(SHE, VERB['see']) + np('friend', 'this', 'old'), 'She sees this old friend.',
     'Elle voit ce vieil ami.'),
    (clause(SHE, VERB['see']) + np('hospital', 'a', 'old', plural=True),
     'She sees some old hospitals.', 'Elle voit de vieux hôpitaux.'),
    (clause(MARIE, VERB['wash']) + np('orange', 'her', 'white'), 'Marie washes her white orange.',
     'Marie lave son orange blanche.'),
    (clause(I, VERB['eat']) + np('cake', 'three', 'small', plural=True), 'I eat three small cakes.',
     'Je mange trois petits gâteaux.'),
    # Negation, auxiliaries, the past.
    (clause(SHE, VERB['buy'], negated=True) + np('apple', 'a', negated=True),
     'She does not buy an apple.', "Elle n'achète pas de pomme."),
    (clause(I, VERB['open'], 'can', negated=True) + np('door'), 'I cannot open the door.',
     'Je ne peux pas ouvrir la porte.'),
    (clause(THEY, VERB['choose'], 'past') + np('egg', 'a', plural=True), 'They chose some eggs.',
     'Ils ont choisi des œufs.'),
    # Pronouns before the verb, and the participle that agrees with them.
    (clause(SHE, VERB['give'], clitics='la lui') + Phrase('it to him'), 'She gives it to him.',
     'Elle la lui donne.'),
    (clause(SHE, VERB['help'], 'past', negated=True, clitics='la', agrees_with=MARIE)
     + Phrase('her'), 'She did not help her.', "Elle ne l'a pas aidée."),
    (clause(SHE, VERB['help'], 'will', clitics='les') + Phrase('them'), 'She will help them.',
     'Elle va les aider.'),
    (clause(MARIE, VERB['show']) + np('book') + Phrase('to', 'à') + np('child', plural=True),
     'Marie shows the book to the children.', 'Marie montre le livre aux enfants.'),
    (clause(SHE, VERB['give']) + np('book') + Phrase('to', 'à') + np('baker'),
     'She gives the book to the baker.', 'Elle donne le livre au boulanger.'),
])
def test_golden(phrase, english, french):
  assert spell(phrase, '.') == (english, french)


def test_questions_are_inverted_in_english_alone():
  question = Phrase('', 'est-ce que') + clause(SHE, VERB['take'], 'past', question=True)
  assert spell(question + np('boat'), '?') == ('Did she take the boat?',
                                               "Est-ce qu'elle a pris le bateau ?")
