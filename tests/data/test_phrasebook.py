"""The French is correct and a function of the English, and the splits do not leak."""

import collections
import json
import os
import re
import subprocess
import sys
from random import Random

import pytest

from transformer.data.phrasebook import verbs
from transformer.data.phrasebook.clauses import NAMES, PRONOUNS, be
from transformer.data.phrasebook.corpus import (
  LEAST_COUNT,
  SIZES,
  generate,
  held_out,
  tokens,
)
from transformer.data.phrasebook.grammar import (
  Phrase,
  noun_phrase,
  owned,
  spell,
  verb_group,
  words,
)
from transformer.data.phrasebook.lexicon import ADJECTIVES, NOUNS
from transformer.data.phrasebook.sentences import some_sentence

NOUN = {noun.en: noun for noun in NOUNS}
ADJECTIVE = {adjective.en: adjective for adjective in ADJECTIVES}
VERB = {verb.en: verb for verb in (*verbs.TRANSITIVES, *verbs.STATIVES, *verbs.GIVERS, verbs.LIKE)}
WHO = {nominal.en[0]: nominal for nominal in (*PRONOUNS, *NAMES)}
VOWEL = '[aeiouyhàâéèêîôœ]'


@pytest.fixture(scope='module')
def corpus():
  return generate()


def everything(corpus):
  return [pair for pairs in corpus.values() for pair in pairs]


def np(noun, determiner='the', *adjectives, plural=False, negated=False):
  return noun_phrase(NOUN[noun], determiner, plural=plural, negated=negated,
                     adjectives=[ADJECTIVE[adjective] for adjective in adjectives])


def does(subject, verb, tense='present', **options):
  who = WHO[subject] if isinstance(subject, str) else subject
  verb = VERB.get(verb, verb)
  return verb_group(who, verb, tense, **options)


def test_splits_have_their_sizes(corpus):
  assert {name: len(pairs) for name, pairs in corpus.items()} == SIZES


@pytest.mark.long
def test_generation_does_not_depend_on_the_hash_seed(corpus):
  program = ('import json; from transformer.data.phrasebook.corpus import generate; '
             'print(json.dumps({n: [(p.en, p.fr) for p in s] for n, s in generate().items()}))')
  seeds = {'PYTHONHASHSEED': '1', 'PYTHONPATH': os.pathsep.join(filter(None, sys.path))}
  printed = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True,
                           check=True, env={**os.environ, **seeds}).stdout
  assert json.loads(printed) == {
    name: [[pair.en, pair.fr] for pair in pairs] for name, pairs in corpus.items()}


def test_french_is_a_function_of_english():
  # Draws from the grammar, because no English sentence of the corpus occurs twice.
  rng, french = Random('many'), {}
  for _ in range(30_000):
    en, fr = spell(*some_sentence(rng))
    assert french.setdefault(en, fr) == fr


def test_no_sentence_occurs_twice_in_all_splits(corpus):
  for language in ('en', 'fr'):
    sentences = [getattr(pair, language) for pair in everything(corpus)]
    assert len(sentences) == len(set(sentences))


def test_every_evaluated_sentence_has_a_pairing_that_train_never_shows(corpus):
  shown = {pairing for pair in corpus['train'] for pairing in pair.pairs}
  assert not any(map(held_out, shown))
  for pair in (*corpus['validation'], *corpus['test']):
    assert pair.held_out
    assert pair.held_out <= pair.pairs
    assert not pair.held_out & shown


def pairings_in_text(english):
  """Yields the pairs in adjacent words (verb, the, adjective, noun), without the grammar."""
  verb_forms = {form: verb.en for verb in (*VERB.values(), verbs.HAVE)
                for form in (verb.en, verb.third, verb.ing, verb.past)}
  noun_forms = {form: noun.en for noun in NOUNS for form in (noun.en, noun.en_plural)}
  text = re.findall(r"[\w']+", english[0].lower() + english[1:])
  for i, word in enumerate(text):
    if word in noun_forms:
      before = i - 1
      while before >= 0 and text[before] in ADJECTIVE:
        yield text[before], noun_forms[word]
        before -= 1
      for form in (text[before - 1:before], text[before - 2:before]):
        if ' '.join(form) in verb_forms and not text[before].endswith("'s"):
          yield verb_forms[' '.join(form)], noun_forms[word]


def test_train_text_shows_no_held_out_pairing(corpus):
  found = {pairing for pair in corpus['train'] for pairing in pairings_in_text(pair.en)}
  assert len(found) > 800
  assert not set(filter(held_out, found))


def test_train_shows_every_evaluated_word_often(corpus):
  for language in ('en', 'fr'):
    counts = collections.Counter(
      token for pair in corpus['train'] for token in tokens(getattr(pair, language)))
    for pair in (*corpus['validation'], *corpus['test']):
      for token in tokens(getattr(pair, language)):
        assert counts[token] >= LEAST_COUNT, (token, pair)


def test_sentences_are_of_many_lengths(corpus):
  lengths = {len(pair.en.split()) for pair in corpus['train']}
  assert lengths >= set(range(3, 16))
  assert max(lengths) <= 16


@pytest.mark.parametrize('wrong', [
  r'\b(de|à) les?\b(?! lui| leur)', rf"\b(le|la|je|ne|de|que|me|ma|sa|ce) {VOWEL}",
  rf'\b(beau|vieux|nouveau) {VOWEL}\w+(?<!s)(?<!x)\b', r"\w' ", r"'(?!" + VOWEL + ')',
  r'  ', r' [,.]', r'[^ ][?!]$', r'\b(du|au) (la|les|l)\b', r'\bdes (petites?|petits|grand|beaux)',
  r'\bpas (un|une|des)\b',
])
def test_french_never_shows(corpus, wrong):
  for pair in everything(corpus):
    found = re.search(wrong, pair.fr, re.IGNORECASE)
    assert not found, pair.fr


@pytest.mark.parametrize('wrong', [
  r'\b(a|what a) [aeiou]', r'\b(an) [^aeiou]', r'\bcan not\b', r'  ', r' [,.?!]',
  r'\b(he|she|it) are\b', r'\b(they|we|you) is\b',
])
def test_english_never_shows(corpus, wrong):
  for pair in everything(corpus):
    assert not re.search(wrong, pair.en, re.IGNORECASE), pair.en


def test_sentences_start_with_a_capital_and_end_alike(corpus):
  for pair in everything(corpus):
    assert pair.en[0].isupper()
    assert pair.fr[0].isupper()
    assert pair.en[-1] == pair.fr[-1]
    assert pair.en[-1] in '.?!'


GOLDEN = (
  # Agreement of determiner, noun and adjective on either side; irregular forms.
  (be(np('house', 'the', 'small', plural=True), ADJECTIVE['white']),
   'The small houses are white.', 'Les petites maisons sont blanches.'),
  (be(np('tree', 'this', 'old'), ADJECTIVE['beautiful'], negation='not'),
   'This old tree is not beautiful.', "Ce vieil arbre n'est pas beau."),
  (be(np('hospital', 'the', plural=True), ADJECTIVE['old'], 'past'),
   'The hospitals were old.', 'Les hôpitaux étaient vieux.'),
  (be(np('water', 'this'), ADJECTIVE['cold'], 'future', degree=words('too', 'trop')),
   'This water is going to be too cold.', 'Cette eau va être trop froide.'),
  (does('we', 'see') + np('hotel', 'a', 'beautiful'), 'We see a beautiful hotel.',
   'Nous voyons un bel hôtel.'),
  (does('she', 'buy') + np('dress', 'a', 'beautiful', 'red'),
   'She is buying a beautiful red dress.', 'Elle achète une belle robe rouge.'),
  (does('they', 'know') + np('student', 'my', 'new', 'Italian'),
   'They know my new Italian student.', 'Ils connaissent mon nouvel étudiant italien.'),
  # Indefinites, partitives, possessives, numbers.
  (does('I', 'see') + np('horse', 'a', plural=True), 'I see some horses.', 'Je vois des chevaux.'),
  (does('I', 'see') + np('horse', 'a', 'old', plural=True), 'I see some old horses.',
   'Je vois de vieux chevaux.'),
  (does('I', 'eat') + np('bread', 'a'), 'I am eating some bread.', 'Je mange du pain.'),
  (does('you', 'drink') + np('water', 'a', 'cold'), 'You are drinking some cold water.',
   "Vous buvez de l'eau froide."),
  (does('Marie', 'like') + np('orange', 'generic', plural=True), 'Marie likes oranges.',
   'Marie aime les oranges.'),
  (does('he', 'take') + np('orange', 'his'), 'He is taking his orange.', 'Il prend son orange.'),
  (does('he', 'take') + np('orange', 'my', 'good'), 'He is taking my good orange.',
   'Il prend ma bonne orange.'),
  (does('we', 'eat') + np('egg', 'three', plural=True), 'We are eating three eggs.',
   'Nous mangeons trois œufs.'),
  (does('we', 'eat') + np('cake', 'many', plural=True), 'We are eating many cakes.',
   'Nous mangeons beaucoup de gâteaux.'),
  (owned(np('castle'), np('teacher')) + words('and', 'et') + owned(np('house'), WHO['Alice']),
   "The teacher's castle and Alice's house.", "Le château du professeur et la maison d'Alice."),
  # Negation.
  (does('I', 'buy', negation='not') + np('apple', 'a', negated=True),
   'I am not buying an apple.', "Je n'achète pas de pomme."),
  (does('Paul', 'buy', 'past', negation='not') + np('egg', 'a', plural=True, negated=True),
   'Paul did not buy any eggs.', "Paul n'a pas acheté d'œufs."),
  (does('Paul', 'drink', 'habit', negation='never') + np('tea', 'a', negated=True),
   'Paul never drinks any tea.', 'Paul ne boit jamais de thé.'),
  # Tenses and auxiliaries.
  (does(np('girl', plural=True), verbs.GO, 'past') + words('to', 'à') + np('market'),
   'The girls went to the market.', 'Les filles sont allées au marché.'),
  (does('she', verbs.RETURN, 'past', negation='not') + words('from', 'de') + np('market'),
   'She did not come back from the market.', "Elle n'est pas revenue du marché."),
  (does('I', verbs.GO) + words('to', 'à') + np('school'), 'I am going to the school.',
   "Je vais à l'école."),
  (does('he', 'give', 'future') + np('hat') + words('to', 'à') + np('child', plural=True),
   'He is going to give the hat to the children.', 'Il va donner le chapeau aux enfants.'),
  (does('we', 'help', 'can', negation='not', clitics=['le']) + words('him', ''),
   'We cannot help him.', "Nous ne pouvons pas l'aider."),
  (does('you', 'open', 'must') + np('door'), 'You must open the door.',
   'Vous devez ouvrir la porte.'),
  (does('they', 'see', 'want') + np('beach'), 'They want to see the beach.',
   'Ils veulent voir la plage.'),
  # Pronouns before the verb, and the participle that agrees with them.
  (does('she', 'give', clitics=['le', 'lui']) + words('it to him', ''),
   'She is giving it to him.', 'Elle le lui donne.'),
  (does('I', 'see', negation='not', clitics=['les']) + words('them', ''),
   'I do not see them.', 'Je ne les vois pas.'),
  (does('he', 'help', 'past', clitics=['la'], agreement=('f', False)) + words('her', ''),
   'He helped her.', "Il l'a aidée."),
  (np('apple', plural=True) + words('that', 'que') + does(
    'Antoine', 'eat', 'past', agreement=('f', True)), 'The apples that Antoine ate.',
   "Les pommes qu'Antoine a mangées."),
  (np('poem', plural=True) + words('that', 'que') + does(
    'she', 'take', 'past', agreement=('m', True)), 'The poems that she took.',
   "Les poèmes qu'elle a pris."),
  # Questions stay in French order after est-ce que.
  (Phrase((), ('est-ce', 'que')) + does('he', 'find', 'past', question=True) + np('scarf'),
   'Did he find the scarf.', "Est-ce qu'il a trouvé l'écharpe."),
  # Places.
  (be(np('cat'), ADJECTIVE['tired']) + words('near', 'près de') + np('park'),
   'The cat is tired near the park.', 'Le chat est fatigué près du parc.'),
  (does(np('bird', plural=True), verbs.DWELLERS[2]) + words('in front of', 'devant')
   + np('church'), 'The birds are singing in front of the church.',
   "Les oiseaux chantent devant l'église."),
)


@pytest.mark.parametrize(('phrase', 'english', 'french'), GOLDEN)
def test_golden(phrase, english, french):
  assert spell(phrase, '.') == (english, french)


def test_marks_are_set_as_each_language_sets_them():
  phrase = np('house', 'what a', 'beautiful')
  assert spell(phrase, '!') == ('What a beautiful house!', 'Quelle belle maison !')


@pytest.mark.parametrize('subject', ['I', 'we', 'you'])
def test_participles_never_agree_with_a_speaker(subject):
  with pytest.raises(ValueError, match='must not agree with I, you or we'):
    does(subject, verbs.GO, 'past')


@pytest.mark.long
def test_tfds_writes_and_reads_it_without_tensorflow(tmp_path, corpus):
  from transformer.data.phrasebook.builder import Phrasebook
  builder = Phrasebook(config='en-fr', data_dir=tmp_path, file_format='array_record')
  builder.download_and_prepare()
  assert builder.info.full_name == 'phrasebook/en-fr/1.0.0'
  for name, pairs in corpus.items():
    source = builder.as_data_source(split=name)
    read = {(source[i]['en'].decode(), source[i]['fr'].decode()) for i in range(len(source))}
    assert len(source) == len(pairs)
    assert read == {(pair.en, pair.fr) for pair in pairs}
  assert 'tensorflow' not in sys.modules
