"""Patterns of statements with one clause; the docstring of a pattern is an example.

A pattern returns a phrase and its final mark, or None if the draw would be odd. `sentences`
then draws again.
"""

import dataclasses
from random import Random

from transformer.data.phrasebook.clauses import (
  FREQUENCIES,
  be_at,
  nouns_of,
  paired,
  resumed,
  some_adjectives,
  some_negation,
  some_object,
  some_person,
  some_place,
  some_predicate,
  some_subject,
  some_tense,
  some_thing,
  some_transitive,
  with_time,
)
from transformer.data.phrasebook.grammar import (
  NUMBERS,
  Nominal,
  Phrase,
  noun_phrase,
  verb_group,
  words,
)
from transformer.data.phrasebook.verbs import (
  ARRIVE,
  DWELLERS,
  GIVERS,
  GO,
  HAVE,
  LIKE,
  RETURN,
  STATIVES,
  TRANSITIVES,
)

Draw = tuple[Phrase, str] | None
# English object, French accusative and dative, person, and gender and number for agreement.
PRONOUN_OBJECTS = (('me', 'me', 'me', 0, None), ('him', 'le', 'lui', 1, ('m', False)),
                   ('her', 'la', 'lui', 1, ('f', False)), ('us', 'nous', 'nous', 2, None),
                   ('you', 'vous', 'vous', 3, None), ('them', 'les', 'leur', 4, ('m', True)))
_MEET = tuple(verb for verb in TRANSITIVES if 'person' in verb.kinds)


def asked(clause: Phrase) -> Draw:
  """Returns a yes-or-no question from a clause with inverted English."""
  return Phrase((), ('est-ce', 'que')) + clause, '?'


def action(rng: Random) -> Draw:
  """Marie did not buy any bread yesterday."""
  tense, subject = some_tense(rng), some_subject(rng)
  verb, noun = some_transitive(rng)
  negation, adverb = some_negation(rng), Phrase()
  if tense == 'habit':
    negation = rng.choice(('never', negation))
    if not negation:  # English puts the adverb before the verb, French after it.
      adverb = words(*rng.choice(FREQUENCIES))
      subject = dataclasses.replace(subject, en=(*subject.en, *adverb.en))
  clause = verb_group(subject, verb, tense, negation=negation) + Phrase((), adverb.fr)
  clause += some_object(rng, verb, noun, negated=bool(negation))
  if tense != 'habit' and rng.random() < 0.35 and not verb.stative:
    clause = with_time(rng, clause, tense)
  return clause, '.'


def opinion(rng: Random) -> Draw:
  """Paul does not like hot tea; I know this village."""
  verb = rng.choice((LIKE, LIKE, STATIVES[1]))
  noun = rng.choice(nouns_of(verb.kinds))
  negation = some_negation(rng, 0.35)
  if verb is LIKE and rng.random() < 0.5:
    thing = noun_phrase(noun, 'generic', plural=not noun.mass,
                        adjectives=some_adjectives(rng, noun, 0.5))
  else:
    thing = some_thing(rng, noun, definite=True)
    if thing.en[0] in ('a', 'some'):
      return None
  return verb_group(some_subject(rng), verb, 'present',
                    negation=negation) + paired(verb, noun) + thing, '.'


def possession(rng: Random) -> Draw:
  """We do not have a green umbrella."""
  noun = rng.choice(nouns_of(HAVE.kinds))
  negation = some_negation(rng, 0.35)
  determiner, plural = ('a', rng.random() < 0.3)
  if not negation and rng.random() < 0.4:
    determiner, plural = rng.choice(('many', *NUMBERS)), True
  thing = noun_phrase(noun, determiner, plural=plural, negated=bool(negation),
                      adjectives=some_adjectives(rng, noun, 0.6))
  return verb_group(some_subject(rng), HAVE, 'present', negation=negation) + paired(
    HAVE, noun) + thing, '.'


def some_topic(rng: Random) -> Nominal:
  """Draws a definite thing, animal or place, or people."""
  if rng.random() < 0.35:
    return some_subject(rng, agreeing=True)
  kinds = 'animal food mass clothing reading container furniture machine opening place plant'
  noun = rng.choice(nouns_of(kinds))
  thing = some_thing(rng, noun, definite=True, chance=0.0)
  return thing if thing.en[0] not in ('a', 'some') else noun_phrase(noun)


def quality(rng: Random) -> Draw:
  """The small houses are white; was the soup too hot?"""
  tense = rng.choice(('present', 'present', 'past', 'future'))
  question = rng.random() < 0.2
  clause = some_predicate(rng, some_topic(rng), tense, some_negation(rng), question)
  return asked(clause) if question else (clause, '.')


def motion(rng: Random) -> Draw:
  """They went to the station yesterday."""
  verb, preposition = rng.choice(((GO, 'to'), (GO, 'to'), (ARRIVE, 'at'), (RETURN, 'from')))
  tense = some_tense(rng)
  subject = some_subject(rng, agreeing=tense == 'past')
  clause = verb_group(subject, verb, tense, negation=some_negation(rng))
  clause += some_place(rng, preposition)
  return with_time(rng, clause, tense) if tense == 'habit' or rng.random() < 0.5 else clause, '.'


def dwelling(rng: Random) -> Draw:
  """The girls are singing in front of the church."""
  tense = some_tense(rng)
  clause = verb_group(some_subject(rng), rng.choice(DWELLERS), tense, negation=some_negation(rng))
  clause += some_place(rng, rng.choice(('in', 'in', 'near')))
  return with_time(rng, clause, tense) if tense == 'habit' or rng.random() < 0.3 else clause, '.'


def _somewhere(rng: Random, thing: Nominal) -> Phrase:
  """Draws a place for a thing.

  Food, paper and clothing are on furniture. Pets and containers are on or under furniture, or
  near a building. All other things are near a building.
  """
  kinds = thing.head.kinds
  if kinds & {'food', 'paper', 'clothing'}:
    return some_place(rng, 'on')
  if kinds & {'pet', 'container'}:
    return some_place(rng, rng.choice(('under', 'on', 'near')))
  return some_place(rng, 'near')


def location(rng: Random) -> Draw:
  """The cat is under the table; there are no flowers near the station; where is my hat?"""
  noun = rng.choice(nouns_of('animal food paper clothing container machine plant'))
  kind = rng.random()
  if kind < 0.45:
    thing = some_thing(rng, noun, definite=True, chance=0.3)
    if thing.en[0] in ('a', 'some'):
      return None
    if kind < 0.1:
      return words('where', 'où') + be_at(resumed(thing), question=True) + thing, '?'
    return be_at(thing, negation=some_negation(rng)) + _somewhere(rng, thing), '.'
  plural, negated = rng.random() < 0.45, rng.random() < 0.3
  thing = noun_phrase(noun, rng.choice(('many', *NUMBERS)) if plural and not negated else 'a',
                      plural=plural, adjectives=some_adjectives(rng, noun, 0.5), negated=negated)
  en = ('there', 'are' if plural else 'is')
  if negated:
    thing = dataclasses.replace(thing, en=('no', *thing.en[1:]))
    return Phrase(en, ('il', 'ne', 'y', 'a', 'pas')) + thing + _somewhere(rng, thing), '.'
  return Phrase(en, ('il', 'y', 'a')) + thing + _somewhere(rng, thing), '.'


def gift(rng: Random) -> Draw:
  """Paul is giving the hat to the teacher; she sent them two letters."""
  verb, tense, subject = rng.choice(GIVERS), some_tense(rng), some_subject(rng)
  negation = some_negation(rng)
  noun = rng.choice(nouns_of(verb.kinds))
  thing = some_object(rng, verb, noun, negated=bool(negation))
  if rng.random() < 0.5:
    receiver = some_person(rng, definite=True)
    return verb_group(subject, verb, tense, negation=negation) + thing + words(
      'to', 'à') + receiver, '.'
  dative, _, clitic, person, _ = rng.choice(PRONOUN_OBJECTS)
  if person == subject.person and person in (0, 2, 3):
    return None
  return verb_group(subject, verb, tense, negation=negation, clitics=[clitic]) + words(
    dative, '') + thing, '.'


def meeting(rng: Random) -> Draw:
  """I do not see them; he helped her this morning."""
  verb, tense, subject = rng.choice(_MEET), some_tense(rng), some_subject(rng)
  en, clitic, _, person, agreement = rng.choice(PRONOUN_OBJECTS)
  if (person == subject.person and person in (0, 2, 3)) or (tense == 'past' and not agreement):
    return None
  clause = verb_group(subject, verb, tense, negation=some_negation(rng, 0.35), clitics=[clitic],
                      agreement=agreement) + words(en, '')
  return with_time(rng, clause, tense) if tense == 'habit' or rng.random() < 0.5 else clause, '.'
