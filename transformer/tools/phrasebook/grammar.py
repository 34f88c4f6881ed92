"""Builds phrases from words: agreement, determiners, tenses, negation and word order.

French follows from English: `you` is always vous, `they` without a noun is masculine, and `it`
agrees with its noun in the same sentence. French words are not contracted (`à le église`) until
`to_text` writes the sentence.
"""

import dataclasses
import re
from collections.abc import Sequence

from transformer.tools.phrasebook.lexicon import Adjective, Noun, Verb, plural_of

# French: masculine, feminine, plural.
_DETERMINERS = {
  'the': 'le la les',
  'this': 'ce cette ces',
  'a': 'un une des',
  'my': 'mon ma mes',
  'your': 'votre votre vos',
  'his': 'son sa ses',
  'her': 'son sa ses',
  'our': 'notre notre nos',
  'their': 'leur leur leurs',
  'two': '- - deux',
  'three': '- - trois',
}
_ENGLISH_PLURALS = {'this': 'these', 'a': 'some'}
_BEFORE_VOWELS = {'ce': 'cet', 'ma': 'mon', 'sa': 'son'}
_VOWELS = 'aeiouyhàâéèêîôœ'
_CONTRACTED = {'de le': 'du', 'de les': 'des', 'à le': 'au', 'à les': 'aux'}
# English auxiliaries, and the French verbs before an infinitive.
_AUXILIARIES = {
  'will': 'vais va allons allez vont',
  'can': 'peux peut pouvons pouvez peuvent',
  'must': 'dois doit devons devez doivent',
}
_HAVE = 'ai a avons avez ont'
_BE = 'suis est sommes êtes sont'
# English and French, present and past.
_FORMS_OF_BE = (
  ('am is are are are', _BE),
  ('was was were were were', 'étais était étions étiez étaient'),
)
# English and French.
_CLITICS = {
  'I': 'me me',
  'we': 'us nous',
  'you': 'you vous',
  'he': 'him le',
  'she': 'her la',
  'they': 'them les',
}
TENSES = ('present', 'past', *_AUXILIARIES)


@dataclasses.dataclass(frozen=True)
class Phrase:
  """Words with the same meaning in both languages."""

  en: str = ''
  fr: str = ''

  def __add__(self, other: 'Phrase') -> 'Phrase':
    return Phrase(join(self.en, other.en), join(self.fr, other.fr))


@dataclasses.dataclass(frozen=True)
class Nominal(Phrase):
  """A noun phrase, name or pronoun; `person` is the index in je, il, nous, vous, ils."""

  person: int = 1
  gender: str = 'm'
  kind: str = 'person'

  def agree(self, masculine: str, feminine: str = '') -> str:
    """Returns the form of an adjective or participle that agrees with this nominal."""
    form = masculine
    if self.gender == 'f':
      form = feminine or f'{masculine}e'
    if self.person in (2, 4):
      return plural_of(form)
    return form

  def joined(self, other: 'Nominal') -> 'Nominal':
    """Returns "self and other"; feminine only if both are."""
    joint = self + Phrase('and', 'et') + other
    gender = 'f' if self.gender == other.gender == 'f' else 'm'
    return Nominal(joint.en, joint.fr, 4, gender, self.kind)

  def pronoun(self) -> 'Nominal':
    """Returns he, she, it or they for a third person."""
    english = 'she' if self.gender == 'f' else 'he'
    french = 'elle' if self.gender == 'f' else 'il'
    if self.person == 4:
      english = 'they'
      french = f'{french}s'
    elif self.kind != 'person':
      english = 'it'
    return dataclasses.replace(self, en=english, fr=french)

  def clitic(self) -> Phrase:
    """Returns me, us, you, him, her, it or them, which precedes a French verb."""
    english = self.en if self.person in (0, 2, 3) else self.pronoun().en
    if english == 'it':
      return Phrase('it', 'la' if self.gender == 'f' else 'le')
    return Phrase(*_CLITICS[english].split())


def join(*words: str) -> str:
  """Joins words, some of which may be empty."""
  return ' '.join(filter(None, words))


def noun_phrase(
  noun: Noun,
  determiner: str,
  adjectives: Sequence[Adjective] = (),
  plural: bool = False,
  negated: bool = False,
) -> Nominal:
  """Returns a determiner, adjectives and a noun; `negated`: after a negated verb, pas de pomme."""
  nominal = Nominal(person=4 if plural else 1, gender=noun.gender, kind=noun.kind)
  head = noun.fr_plural if plural else noun.fr
  vowel = not plural and noun.gender == 'm' and head[0] in _VOWELS
  preceding = []
  following = []
  for adjective in adjectives:
    form = nominal.agree(adjective.masculine, adjective.feminine)
    if not adjective.before:
      following.append(form)
    else:
      preceding.append(adjective.liaison if vowel else form)
  group = join(*preceding, head, *following)
  masculine, feminine, plural_form = _DETERMINERS[determiner].split()
  french = feminine if noun.gender == 'f' else masculine
  english = determiner
  if plural:
    french = plural_form
    english = _ENGLISH_PLURALS.get(determiner, determiner)
  if determiner == 'a' and (negated or (plural and preceding)):
    french = 'de'
  elif group[0] in _VOWELS:
    french = _BEFORE_VOWELS.get(french, french)
  if english == 'some' and negated:
    english = 'any'
  adjectives_en = [adjective.en for adjective in adjectives]
  noun_en = noun.en_plural if plural else noun.en
  english = join(english, *adjectives_en, noun_en)
  return dataclasses.replace(nominal, en=english, fr=join(french, group))


def clause(
  subject: Nominal,
  verb: Verb,
  tense: str = 'present',
  *,
  negated: bool = False,
  question: bool = False,
  clitics: str = '',
  agrees_with: Nominal | None = None,
) -> Phrase:
  """Returns a subject and its verb; the caller adds the object.

  A question inverts English; French keeps the word order of a statement, as after est-ce que.
  `clitics` are French pronouns before the verb. A participle agrees with a preceding direct object:
  les pommes que Marie a mangées.
  """
  third = tense == 'present' and subject.person == 1
  auxiliary = tense
  form = verb.en
  if tense in ('present', 'past'):
    auxiliary = ''
    if negated or question:
      auxiliary = 'does' if third else 'do'
      if tense == 'past':
        auxiliary = 'did'
    elif tense == 'past':
      form = verb.past
    elif third:
      form = verb.third
  start = (auxiliary, subject.en) if question else (subject.en, auxiliary)
  english = join(*start, 'not' if negated else '', form)
  ne = 'ne' if negated else ''
  pas = 'pas' if negated else ''
  if tense == 'present':
    french = join(ne, clitics, verb.present[subject.person], pas)
  elif tense == 'past':
    forms = _HAVE
    if verb.etre:
      forms = _BE
      agrees_with = subject
    participle = verb.participle
    if agrees_with:
      participle = agrees_with.agree(participle)
    auxiliary_fr = forms.split()[subject.person]
    french = join(ne, clitics, auxiliary_fr, pas, participle)
  else:
    auxiliary_fr = _AUXILIARIES[tense].split()[subject.person]
    french = join(ne, auxiliary_fr, pas, clitics, verb.infinitive)
  return Phrase(english, join(subject.fr, french))


def be(
  subject: Nominal, *, past: bool, negated: bool, question: bool = False
) -> Phrase:
  """Returns a subject and its form of "to be"; a question inverts only English."""
  english_forms, french_forms = _FORMS_OF_BE[past]
  english = english_forms.split()[subject.person]
  french = french_forms.split()[subject.person]
  start = (english, subject.en) if question else (subject.en, english)
  if not negated:
    return Phrase(join(*start), join(subject.fr, french))
  return Phrase(join(*start, 'not'), join(subject.fr, 'ne', french, 'pas'))


def contract(english: str) -> str:
  """Contracts English: don't for do not, and so on."""
  english = english.replace('cannot', "can't").replace('will not', "won't")
  return re.sub(r'\b(do|does|did|is|are|was|were|must) not\b', r"\1n't", english)


def to_text(phrase: Phrase, mark: str, capital: bool = True) -> tuple[str, str]:
  """Returns a phrase as an English and a French sentence that end in `mark`: `.`, `?` or none."""
  english = re.sub(r'\ba (?=[aeiouEI])', 'an ', phrase.en).replace('can not', 'cannot')
  french = phrase.fr.replace(' de des ', ' de ')
  french = re.sub(
    rf'\b(l(?=[ea])|[jdnm](?=e)|qu(?=e))[ea] (?=[{_VOWELS}])',
    r"\1'",
    french,
    flags=re.IGNORECASE,
  )
  french = re.sub(r'\b(de|à) les?\b', lambda words: _CONTRACTED[words[0]], french)
  english = english.replace(' ,', ',')
  french = french.replace(' ,', ',')
  if capital or english[0].isupper():
    english = english[0].upper() + english[1:]
    french = french[0].upper() + french[1:]
  space = ' ' if mark == '?' else ''
  return f'{english}{mark}', f'{french}{space}{mark}'
