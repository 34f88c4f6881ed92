"""Draws random subjects, objects, places and clauses, which the patterns combine.

All draws come from the given `random.Random`. The kinds of a noun limit its adjectives and
verbs. Each combination of an adjective or a verb with a noun is recorded in `Phrase.pairs`.
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
# Adjectives without a future: nothing is going to be young.
_LASTING = ('young', 'old', 'small', 'intelligent', 'strange')


def nouns_of(kinds: frozenset[str] | str) -> list[Noun]:
  """Returns the nouns of any of these kinds, in the lexicon's order."""
  wanted = frozenset(kinds.split()) if isinstance(kinds, str) else kinds
  return [noun for noun in NOUNS if noun.kinds & wanted]


def adjectives_for(noun: Noun | None) -> list[Adjective]:
  """Returns the adjectives for a noun, or for a person if there is no noun."""
  if noun is None:
    return [a for a in ADJECTIVES if a.en in STATES]
  return [a for a in ADJECTIVES if a.kinds & noun.kinds]


def some_adjectives(rng: Random, noun: Noun, chance: float) -> list[Adjective]:
  """Draws up to two adjectives in English order; the second is a colour or origin (small white)."""
  if rng.random() >= chance:
    return []
  choice = rng.choice(adjectives_for(noun))
  lasts = [a for a in adjectives_for(noun) if a.last]
  if choice.before and lasts and rng.random() < 0.25:
    return [choice, rng.choice(lasts)]
  return [choice]


def some_person(rng: Random, noun: Noun | None = None, *, definite: bool = False,
                chance: float = 0.3) -> Nominal:
  """Draws people: the old woman, my brothers, two young doctors, a child.

  Only relatives, friends and neighbours have possessives: `ma fille` would be a daughter.
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
  """Draws a pronoun, a name or people; `agreeing` excludes I, you and we."""
  kind = rng.random()
  if kind < 0.5:
    return rng.choice([p for p in PRONOUNS if not agreeing or p.person in (1, 4)])
  return rng.choice(NAMES) if kind < 0.65 else some_person(rng, definite=agreeing)


def some_thing(rng: Random, noun: Noun, *, negated: bool = False, definite: bool = False,
               chance: float = 0.45) -> Nominal:
  """Draws a phrase around a noun: some fresh bread, Paul's car, two red hats."""
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
  """Draws a name or a singular noun, so that English adds 's."""
  if rng.random() < 0.5:
    return rng.choice(NAMES)
  return noun_phrase(rng.choice(nouns_of('worker')), 'the')


def some_place(rng: Random, preposition: str) -> Phrase:
  """Draws a place after a preposition: to the market, behind his house, in the old church."""
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
  """Draws a time for a tense: yesterday, every day."""
  return words(*rng.choice(TIMES[tense]))


def with_time(rng: Random, clause: Phrase, tense: str) -> Phrase:
  """Adds a time after a clause, or sometimes before a positive clause, with a comma."""
  if rng.random() < 0.3 and 'not' not in clause.en:
    return some_time(rng, tense) + words(',', ',') + clause
  return clause + some_time(rng, tense)


def some_tense(rng: Random) -> str:
  """Draws a tense for an action, most often the present."""
  return rng.choice(('present', 'present', 'present', 'present', 'past', 'past', 'habit', 'habit',
                     'future', 'want', 'can', 'must'))


def some_negation(rng: Random, chance: float = 0.25) -> str:
  """Draws `not` or ''."""
  return 'not' if rng.random() < chance else ''


def paired(verb: Verb, noun: Noun) -> Phrase:
  """Returns a phrase without words, which records a verb and its object."""
  return Phrase(pairs=frozenset({(verb.en, noun.en)}))


def some_transitive(rng: Random) -> tuple[Verb, Noun]:
  """Draws a transitive verb and a noun for its object."""
  verb = rng.choice((*TRANSITIVES, STATIVES[0]))
  return verb, rng.choice(nouns_of(verb.kinds))


def some_object(rng: Random, verb: Verb, noun: Noun, *, negated: bool = False) -> Phrase:
  """Draws a phrase for the object of a verb, and records the pair."""
  return paired(verb, noun) + some_thing(rng, noun, negated=negated)


def be(subject: Nominal, adjective: Adjective, tense: str = 'present', *, negation: str = '',
       question: bool = False, degree: Phrase | None = None) -> Phrase:
  """Returns a subject, a form of "to be" and an adjective, in the present, past or future."""
  copula = be_at(subject, tense, negation=negation, question=question)
  pairs = frozenset({(adjective.en, subject.head.en)} if subject.head else ())
  return copula + (degree or Phrase()) + Phrase(
    (adjective.en,), (adjective.form(subject.gender, subject.plural),), pairs)


def be_at(subject: Nominal, tense: str = 'present', *, negation: str = '',
          question: bool = False) -> Phrase:
  """Returns a subject and a form of "to be"; a place or an adjective follows."""
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
  """Draws very, too or nothing; always nothing for colours, origins and `empty`."""
  if adjective.last or adjective.en == 'empty' or rng.random() >= chance:
    return Phrase()
  return words(*rng.choice((('very', 'très'), ('too', 'trop'))))


def some_predicate(rng: Random, subject: Nominal, tense: str = 'present', negation: str = '',
                   question: bool = False) -> Phrase:
  """Draws an adjective for a subject, and joins them by a form of "to be"."""
  # After "to be", `new` could mean nouveau or neuf.
  adjective = rng.choice([a for a in adjectives_for(subject.head) if a.en != 'new'
                          and (tense != 'future' or a.en not in _LASTING)])
  return be(subject, adjective, tense, negation=negation, question=question,
            degree=some_degree(rng, adjective))


def resumed(nominal: Nominal) -> Nominal:
  """Returns a subject without words and pairs, for a second verb of the same subject."""
  return dataclasses.replace(nominal, en=(), fr=(), pairs=frozenset())


def pronoun_for(nominal: Nominal) -> Nominal:
  """Returns the pronoun for a nominal: he, she, it or they."""
  feminine = nominal.gender == 'f'
  if nominal.plural:
    en, fr = 'they', 'elles' if feminine else 'ils'
  else:
    en = ('she' if feminine else 'he') if nominal.animate else 'it'
    fr = 'elle' if feminine else 'il'
  return dataclasses.replace(nominal, en=(en,), fr=(fr,), pairs=frozenset())


def some_act(rng: Random, subject: Nominal, tense: str, *, negation: str = '',
             question: bool = False) -> Phrase:
  """Draws a transitive verb and its object for a subject."""
  verb, noun = some_transitive(rng)
  return verb_group(subject, verb, tense, negation=negation, question=question) + some_object(
    rng, verb, noun, negated=bool(negation))
