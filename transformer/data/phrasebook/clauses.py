"""Random subjects, objects, places and clauses, for `sentences` to assemble.

Everything here draws from the `random.Random` that it is handed and from nothing else. What is
said of a noun is limited by its kinds; every adjective and verb that meets a noun is recorded
in the phrase's `pairs`.
"""

import dataclasses
from random import Random

from transformer.data.phrasebook.grammar import (
  NUMBERS,
  Nominal,
  Phrase,
  noun_phrase,
  owned,
  verb_group,
  words,
)
from transformer.data.phrasebook.lexicon import ADJECTIVES, NOUNS, Adjective, Noun, Verb
from transformer.data.phrasebook.verbs import ETAIT, ETRE, GO, STATIVES, TRANSITIVES

POSSESSIVES = ('my', 'your', 'his', 'her', 'our', 'their')
PRONOUNS = tuple(Nominal((en,), (fr,), person=person, gender=gender) for en, fr, person, gender in (
  ('I', 'je', 0, 'm'), ('he', 'il', 1, 'm'), ('she', 'elle', 1, 'f'), ('we', 'nous', 2, 'm'),
  ('you', 'vous', 3, 'm'), ('they', 'ils', 4, 'm')))
NAMES = tuple(Nominal((name,), (name,), gender=gender) for name, gender in (
  ('Marie', 'f'), ('Paul', 'm'), ('Alice', 'f'), ('Antoine', 'm'), ('Sophie', 'f'),
  ('Louis', 'm')))
TIMES = {
  'present': (('today', "aujourd'hui"), ('now', 'maintenant')),
  'habit': (('every day', 'tous les jours'), ('every morning', 'tous les matins'),
            ('on Sundays', 'le dimanche')),
  'past': (('yesterday', 'hier'), ('last week', 'la semaine dernière'),
           ('this morning', 'ce matin')),
  'future': (('tomorrow', 'demain'), ('tonight', 'ce soir'), ('next week', 'la semaine prochaine')),
  'want': (('today', "aujourd'hui"), ('tomorrow', 'demain')),
  'can': (('today', "aujourd'hui"), ('tomorrow', 'demain')),
  'must': (('today', "aujourd'hui"), ('tomorrow', 'demain')),
}
FREQUENCIES = (('often', 'souvent'), ('always', 'toujours'))
NEAR = (('in front of', 'devant'), ('behind', 'derrière'), ('near', 'près de'),
        ('next to', 'à côté de'))
STATES = ('tired', 'happy', 'sad', 'ill', 'rich', 'young', 'old', 'intelligent', 'quiet',
          'small')
# What nothing is going to be.
_LASTING = ('young', 'old', 'small', 'intelligent', 'strange')


def nouns_of(kinds: frozenset[str] | str) -> list[Noun]:
  """Nouns of any of these kinds, in the lexicon's order."""
  wanted = frozenset(kinds.split()) if isinstance(kinds, str) else kinds
  return [noun for noun in NOUNS if noun.kinds & wanted]


def adjectives_for(noun: Noun | None) -> list[Adjective]:
  """Adjectives that suit a noun; for a name or a pronoun, states of a person."""
  if noun is None:
    return [a for a in ADJECTIVES if a.en in STATES]
  return [a for a in ADJECTIVES if a.kinds & noun.kinds]


def some_adjectives(rng: Random, noun: Noun, chance: float) -> list[Adjective]:
  """None, one, or a first and a last one (small white, old English), in English order."""
  if rng.random() >= chance:
    return []
  choice = rng.choice(adjectives_for(noun))
  lasts = [a for a in adjectives_for(noun) if a.last]
  if choice.before and lasts and rng.random() < 0.25:
    return [choice, rng.choice(lasts)]
  return [choice]


def some_person(rng: Random, noun: Noun | None = None, *, definite: bool = False,
                chance: float = 0.3) -> Nominal:
  """People: the old woman, my brothers, two young doctors, a child.

  Only relatives, friends and neighbours are anyone's: `ma fille` would be a daughter.
  """
  noun = noun or rng.choice(nouns_of('person'))
  plural = rng.random() < 0.3
  determiner = rng.choice(('the', 'the', 'the', 'this', 'a'))
  if 'relative' in noun.kinds or (noun.en in ('friend', 'neighbour') and rng.random() < 0.6):
    determiner = rng.choice(POSSESSIVES)
  elif determiner == 'a' and plural:
    determiner = rng.choice(('many', *NUMBERS))
  if definite and determiner in ('a', 'many', *NUMBERS):
    determiner = 'the'
  return noun_phrase(noun, determiner, plural=plural,
                     adjectives=some_adjectives(rng, noun, chance))


def some_subject(rng: Random, *, agreeing: bool = False) -> Nominal:
  """A pronoun, a name or people; `agreeing` leaves out I, you and we."""
  kind = rng.random()
  if kind < 0.5:
    return rng.choice([p for p in PRONOUNS if not agreeing or p.person in (1, 4)])
  return rng.choice(NAMES) if kind < 0.65 else some_person(rng, definite=agreeing)


def some_thing(rng: Random, noun: Noun, *, negated: bool = False, definite: bool = False,
               chance: float = 0.45) -> Nominal:
  """A noun phrase on a given noun: some fresh bread, Paul's car, these two red hats."""
  if 'person' in noun.kinds:
    return some_person(rng, noun, definite=definite or negated)
  plural = not noun.mass and rng.random() < 0.35
  adjectives = some_adjectives(rng, noun, chance)
  draw = rng.random()
  if draw < 0.33 or (definite and draw < 0.62):
    determiner = 'the'
  elif draw < 0.62:
    determiner = 'a'
  elif draw < 0.72:
    determiner = 'this'
  elif draw < 0.86:
    determiner = rng.choice(POSSESSIVES)
  elif draw < 0.93 and not noun.mass and not negated and not definite:
    determiner, plural = rng.choice(('many', *NUMBERS)), True
  else:
    thing = noun_phrase(noun, 'the', plural=plural, adjectives=adjectives)
    return owned(thing, some_owner(rng))
  return noun_phrase(noun, determiner, plural=plural, adjectives=adjectives, negated=negated)


def some_owner(rng: Random) -> Nominal:
  """A name or one person, so that English takes a plain 's."""
  if rng.random() < 0.5:
    return rng.choice(NAMES)
  return noun_phrase(rng.choice(nouns_of('worker')), 'the')


def some_place(rng: Random, preposition: str) -> Phrase:
  """A preposition and a place: to the market, behind his house, in the old church."""
  if preposition == 'near':
    en, fr, kinds = (*rng.choice(NEAR), 'building')
  else:
    en, fr, kinds = {'in': ('in', 'dans', 'inside'), 'to': ('to', 'à', 'goal'),
                     'from': ('from', 'de', 'goal'), 'at': ('at', 'à', 'goal'),
                     'on': ('on', 'sur', 'support'), 'under': ('under', 'sous', 'cover')
                     }[preposition]
  noun = rng.choice(nouns_of(kinds))
  own = noun.en in ('house', 'school', 'village', 'hotel', 'garden')
  determiner = rng.choice(('the', 'the', 'the', 'this', rng.choice(POSSESSIVES) if own else 'the'))
  place = noun_phrase(noun, determiner, adjectives=some_adjectives(rng, noun, 0.3))
  return words(en, fr) + place


def some_time(rng: Random, tense: str) -> Phrase:
  """A time that suits a tense: yesterday, every day."""
  return words(*rng.choice(TIMES[tense]))


def with_time(rng: Random, clause: Phrase, tense: str) -> Phrase:
  """Puts a time after a clause or, if it is positive, now and then before it and a comma."""
  if rng.random() < 0.3 and 'not' not in clause.en:
    return some_time(rng, tense) + words(',', ',') + clause
  return clause + some_time(rng, tense)


def some_tense(rng: Random) -> str:
  """A tense for an action; the present comes up most."""
  return rng.choice(('present', 'present', 'present', 'present', 'past', 'past', 'habit', 'habit',
                     'future', 'want', 'can', 'must'))


def some_negation(rng: Random, chance: float = 0.25) -> str:
  """`not` with a chance, else ''."""
  return 'not' if rng.random() < chance else ''


def paired(verb: Verb, noun: Noun) -> Phrase:
  """No words: the record that a verb has met its object."""
  return Phrase(pairs=frozenset({(verb.en, noun.en)}))


def some_transitive(rng: Random) -> tuple[Verb, Noun]:
  """An action, or seeing, and something to do it to."""
  verb = rng.choice((*TRANSITIVES, STATIVES[0]))
  return verb, rng.choice(nouns_of(verb.kinds))


def some_object(rng: Random, verb: Verb, noun: Noun, *, negated: bool = False) -> Phrase:
  """The object of a verb, with the pair recorded."""
  return paired(verb, noun) + some_thing(rng, noun, negated=negated)


def be(subject: Nominal, adjective: Adjective, tense: str = 'present', *, negation: str = '',
       question: bool = False, degree: Phrase | None = None) -> Phrase:
  """Subject, to be, adjective; present, past (était) or future (va être)."""
  copula = be_at(subject, tense, negation=negation, question=question)
  pairs = frozenset({(adjective.en, subject.head.en)} if subject.head else ())
  return copula + (degree or Phrase()) + Phrase(
    (adjective.en,), (adjective.form(subject.gender, subject.plural),), pairs)


def be_at(subject: Nominal, tense: str = 'present', *, negation: str = '',
          question: bool = False) -> Phrase:
  """Subject and to be, for a place or an adjective to follow."""
  person = subject.person
  present = 'am' if person == 0 else 'is' if person == 1 else 'are'
  finite = ('was' if person < 2 else 'were') if tense == 'past' else present
  tail = ('going', 'to', 'be') if tense == 'future' else ()
  negative = (negation,) if negation else ()
  lead = (finite, *subject.en) if question else (*subject.en, finite)
  fr_finite = {'present': ETRE, 'past': ETAIT, 'future': GO.present}[tense][person]
  fr_tail = ('être',) if tense == 'future' else ()
  ne, pas = (('ne',), ('pas',)) if negation else ((), ())
  return Phrase((*lead, *negative, *tail), (*subject.fr, *ne, fr_finite, *pas, *fr_tail),
                subject.pairs)


def some_degree(rng: Random, adjective: Adjective, chance: float = 0.35) -> Phrase:
  """Very, too or nothing; colours, origins and `empty` have none."""
  if adjective.last or adjective.en == 'empty' or rng.random() >= chance:
    return Phrase()
  return words(*rng.choice((('very', 'très'), ('too', 'trop'))))


def some_predicate(rng: Random, subject: Nominal, tense: str = 'present', negation: str = '',
                   question: bool = False) -> Phrase:
  """To be and an adjective that suits the subject."""
  # After to be, `new` would be neuf for a thing that nobody has used: left out.
  adjective = rng.choice([a for a in adjectives_for(subject.head) if a.en != 'new'
                          and (tense != 'future' or a.en not in _LASTING)])
  return be(subject, adjective, tense, negation=negation, question=question,
            degree=some_degree(rng, adjective))


def resumed(nominal: Nominal) -> Nominal:
  """The same subject without its words or pairs, for a verb that continues it."""
  return dataclasses.replace(nominal, en=(), fr=(), pairs=frozenset())


def pronoun_for(nominal: Nominal) -> Nominal:
  """The pronoun that refers back to a nominal: he, she, it, they."""
  feminine = nominal.gender == 'f'
  if nominal.plural:
    en, fr = 'they', 'elles' if feminine else 'ils'
  else:
    en = ('she' if feminine else 'he') if nominal.animate else 'it'
    fr = 'elle' if feminine else 'il'
  return dataclasses.replace(nominal, en=(en,), fr=(fr,), pairs=frozenset())


def some_act(rng: Random, subject: Nominal, tense: str, *, negation: str = '',
             question: bool = False) -> Phrase:
  """Subject, transitive verb and object."""
  verb, noun = some_transitive(rng)
  return verb_group(subject, verb, tense, negation=negation, question=question) + some_object(
    rng, verb, noun, negated=bool(negation))
