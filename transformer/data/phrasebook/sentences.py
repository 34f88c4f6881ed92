"""Patterns of other sentences, and `some_sentence`, which draws a pattern.

The docstring of a pattern is an example. A pattern returns a phrase and its final mark, or
None if the draw would be odd or unclear (we see us, an `it` with two antecedents).
`some_sentence` then draws again.
"""

import dataclasses
from collections.abc import Callable
from random import Random

from transformer.data.phrasebook.clauses import (
  adjectives_for,
  be,
  nouns_of,
  paired,
  pronoun_for,
  resumed,
  some_act,
  some_adjectives,
  some_degree,
  some_negation,
  some_object,
  some_person,
  some_predicate,
  some_subject,
  some_tense,
  some_thing,
  some_transitive,
)
from transformer.data.phrasebook.grammar import (
  Nominal,
  Phrase,
  noun_phrase,
  verb_group,
  words,
)
from transformer.data.phrasebook.lexicon import NOUNS, Verb
from transformer.data.phrasebook.statements import (
  PRONOUN_OBJECTS,
  Draw,
  action,
  asked,
  dwelling,
  gift,
  location,
  meeting,
  motion,
  opinion,
  possession,
  quality,
  some_topic,
)
from transformer.data.phrasebook.verbs import (
  CHAINS,
  GIVERS,
  GO,
  LIKE,
  STATIVES,
  THINKERS,
  TRANSITIVES,
)

_VERBS = {verb.en: verb for verb in (*TRANSITIVES, *STATIVES)}
_LEMMAS = {form: noun.en for noun in NOUNS for form in (noun.en, noun.en_plural)}
_STRESSED = {'me': 'moi'}


def contrast(rng: Random) -> Draw:
  """The garden is small, but the house is beautiful; Marie is sad, and Paul is old."""
  compared = rng.random() < 0.6
  first, second = (
    some_predicate(rng, some_topic(rng), negation=some_negation(rng, 0.15)) if compared
    else some_act(rng, some_subject(rng), 'present', negation=some_negation(rng, 0.15))
    for _ in range(2))
  return first + words(*rng.choice(((', but', ', mais'), (', and', ', et')))) + second, '.'


def chain(rng: Random) -> Draw:
  """Marie bought the apples and ate them; he takes the hat and gives it to her."""
  subject, tense = some_subject(rng), rng.choice(('habit', 'past', 'past', 'future', 'want'))
  giving = rng.random() < 0.35
  if giving:
    first = _VERBS[rng.choice(('take', 'buy', 'choose', 'find', 'write'))]
    then = rng.choice(GIVERS)
    nouns = [noun for noun in nouns_of(first.kinds) if noun.kinds & then.kinds]
  else:
    one, two, kinds = rng.choice(CHAINS)
    first, then, nouns = _VERBS[one], _VERBS[two], nouns_of(kinds)
  if not nouns:
    return None
  noun = rng.choice(nouns)
  thing = some_thing(rng, noun)
  clitic = 'les' if thing.plural else 'la' if thing.gender == 'f' else 'le'
  after = words('them' if thing.plural else 'it', '')
  clitics, dative = [clitic], ''
  if giving:
    dative, _, indirect, person, _ = rng.choice(PRONOUN_OBJECTS)
    if (person == subject.person and person in (0, 2, 3)) or (person == 4 and thing.plural):
      return None
    clitics = [indirect, clitic] if person in (0, 2, 3) else [clitic, indirect]
    after += words(f'to {dative}', '')
  second = verb_group(resumed(subject), then, tense, clitics=clitics,
                      agreement=(thing.gender, thing.plural))
  # Both infinitives share a modal: is going to buy it and eat it.
  if tense in ('future', 'want'):
    second = Phrase((then.en,), (*clitics, then.infinitive))
  clause = verb_group(subject, first, tense) + paired(first, noun) + thing
  return clause + words('and', 'et') + second + paired(then, noun) + after, '.'


def who_clause(rng: Random) -> Draw:
  """The man who is reading the letter is not happy."""
  head = some_person(rng, definite=True, chance=0.0)
  tense = rng.choice(('present', 'past'))
  relative = some_act(rng, dataclasses.replace(head, en=(*head.en, 'who'), fr=(*head.fr, 'qui')),
                      tense)
  return relative + some_predicate(rng, resumed(head), negation=some_negation(rng)), '.'


def that_clause(rng: Random) -> Draw:
  """The oranges that Marie bought are good; I like the dress that you are wearing."""
  verb, noun = some_transitive(rng)
  if 'person' in noun.kinds:
    return None
  liked = rng.random() < 0.35 and bool(LIKE.kinds & noun.kinds)
  plural = not noun.mass and rng.random() < 0.5
  # Before a predicate there is no adjective, so that no blue dress is called red.
  thing = noun_phrase(noun, plural=plural,
                      adjectives=some_adjectives(rng, noun, 0.4 if liked else 0.0))
  clause = thing + words('that', 'que') + verb_group(
    some_subject(rng), verb, rng.choice(('present', 'past', 'past')),
    agreement=(noun.gender, plural)) + paired(verb, noun)
  if liked:
    return verb_group(some_subject(rng), LIKE, 'present', negation=some_negation(rng)) + paired(
      LIKE, noun) + clause, '.'
  return clause + some_predicate(rng, resumed(thing), negation=some_negation(rng, 0.15)), '.'


def report(rng: Random) -> Draw:
  """She thinks that the castle is too expensive."""
  verb: Verb = rng.choice(THINKERS)
  clause = (some_predicate(rng, some_topic(rng), negation=some_negation(rng)) if rng.random() < 0.6
            else some_act(rng, some_subject(rng), rng.choice(('present', 'past', 'future'))))
  return verb_group(some_subject(rng), verb, 'present') + words('that', 'que') + clause, '.'


def reason(rng: Random) -> Draw:
  """Paul is not buying the dress because it is too expensive."""
  tense = rng.choice(('present', 'past'))
  subject, negation = some_subject(rng, agreeing=True), some_negation(rng, 0.6)
  verb, noun = some_transitive(rng)
  if 'person' in noun.kinds or 'animal' in noun.kinds:
    return None
  thing = some_thing(rng, noun, definite=True, chance=0.0)
  act = verb_group(subject, verb, tense, negation=negation) + paired(verb, noun) + thing
  # The meaning of `they` or `it` must be clear: the subject is a person, the object one thing.
  if thing.plural or thing.en[0] in ('a', 'some'):
    return None
  because = words('because', 'parce que')
  if rng.random() < 0.5:
    states = ('tired', 'ill', 'sad') if negation else ('happy', 'rich')
    adjective = rng.choice([a for a in adjectives_for(subject.head) if a.en in states])
    return act + because + be(pronoun_for(subject), adjective, tense,
                              degree=some_degree(rng, adjective)), '.'
  return act + because + some_predicate(rng, pronoun_for(thing), tense), '.'


def question(rng: Random) -> Draw:
  """Did you see the horse? Where are they going? What is Paul reading?"""
  tense, subject, kind = some_tense(rng), some_subject(rng), rng.random()
  if kind < 0.55:
    clause = some_act(rng, subject, tense, question=True)
    return asked(clause)
  if kind < 0.65:
    who = Nominal(('who',), ('qui',))
    return some_act(rng, who, rng.choice(('present', 'past', 'future'))), '?'
  if kind < 0.75:
    verb = rng.choice([verb for verb in TRANSITIVES if 'person' not in verb.kinds])
    return words('what', "qu'est-ce que") + verb_group(subject, verb, tense, question=True), '?'
  if kind < 0.85 and tense != 'past':
    return words('where', 'où est-ce que') + verb_group(subject, GO, tense, question=True), '?'
  en, fr = rng.choice((('why', 'pourquoi'), ('when', 'quand')))
  return words(en, f'{fr} est-ce que') + some_act(rng, subject, tense, question=True), '?'


def exclamation(rng: Random) -> Draw:
  """What a beautiful bird!"""
  noun = rng.choice([noun for noun in nouns_of('person animal food clothing reading container '
                                               'furniture machine place plant')
                     if 'relative' not in noun.kinds])
  return noun_phrase(noun, 'what a', adjectives=some_adjectives(rng, noun, 1.0)), '!'


def order(rng: Random) -> Draw:
  """Do not open the window! Show us the letter, please."""
  negation = rng.random() < 0.3
  en, fr = (('do', 'not'), ('ne',)) if negation else ((), ())
  if rng.random() < 0.4 and not negation:
    verb, (dative, _, clitic, _, _) = rng.choice(GIVERS), rng.choice(
      [o for o in PRONOUN_OBJECTS if o[0] != 'you'])
    clause = Phrase((verb.en, dative), (f'{verb.present[3]}-{_STRESSED.get(clitic, clitic)}',))
  else:
    verb = rng.choice(TRANSITIVES)
    clause = Phrase((*en, verb.en), (*fr, verb.present[3], *(('pas',) if negation else ())))
  clause += some_object(rng, verb, rng.choice(nouns_of(verb.kinds)), negated=negation)
  if rng.random() < 0.5:
    return clause + words(', please', ", s'il vous plaît"), '.'
  return clause, '!'


# How often each pattern is drawn.
PATTERNS: tuple[tuple[Callable[[Random], Draw], int], ...] = (
  (action, 18), (opinion, 8), (possession, 6), (quality, 10), (contrast, 7), (chain, 12),
  (gift, 9), (meeting, 5), (motion, 8), (dwelling, 6), (location, 8), (who_clause, 6),
  (that_clause, 15), (report, 8), (reason, 9), (question, 10), (exclamation, 5), (order, 6),
)


def some_sentence(rng: Random) -> tuple[Phrase, str]:
  """Draws a pattern, then a sentence: a phrase and its mark for `grammar.spell`."""
  patterns, weights = zip(*PATTERNS, strict=True)
  while True:
    draw = rng.choices(patterns, weights)[0](rng)
    if draw is None:
      continue
    named = [_LEMMAS[word] for word in draw[0].en if word in _LEMMAS]
    if len(named) == len(set(named)):
      return draw
