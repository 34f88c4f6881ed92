"""Draws sentences of several patterns; the docstring of a pattern is an example."""

import dataclasses
from collections.abc import Sequence
from random import Random

from transformer.tools.phrasebook import grammar
from transformer.tools.phrasebook.grammar import TENSES, Nominal, Phrase, clause
from transformer.tools.phrasebook.words import ADJECTIVES, GIVING, NOUNS, VERBS, Verb

_DETERMINERS = ('the', 'the', 'the', 'a', 'a', 'this', 'my', 'your', 'his', 'her', 'our', 'their')
_PRONOUNS = (
  Nominal('I', 'je', 0),
  Nominal('he', 'il'),
  Nominal('she', 'elle', gender='f'),
  Nominal('we', 'nous', 2),
  Nominal('you', 'vous', 3),
  Nominal('they', 'ils', 4),
)
_NAMES = (
  *(Nominal(name, name) for name in ('Paul', 'Antoine', 'Louis')),
  *(Nominal(name, name, gender='f') for name in ('Marie', 'Alice', 'Sophie')),
)
# To whom: after an English verb, and before a French one.
_DATIVES = (
  Phrase('me', 'me'),
  Phrase('us', 'nous'),
  Phrase('you', 'vous'),
  Phrase('him', 'lui'),
  Phrase('her', 'lui'),
  Phrase('them', 'leur'),
)
_TIMES = {
  'present': (Phrase('every day', 'tous les jours'), Phrase('on Sundays', 'le dimanche')),
  'past': (Phrase('yesterday', 'hier'), Phrase('last week', 'la semaine dernière')),
  'will': (Phrase('tomorrow', 'demain'), Phrase('tonight', 'ce soir')),
}
_TENSES = ('present', 'past', *TENSES)  # The simple ones are drawn more often.
_DEGREES = (Phrase(), Phrase(), Phrase('very', 'très'), Phrase('too', 'trop'))
_LINKS = (Phrase(', but', ', mais'), Phrase(', and', ', et'))
# Where something is or happens, with the kinds of places.
_WHERE = (
  (Phrase('in', 'dans'), frozenset({'building', 'place'})),
  (Phrase('near', 'près de'), frozenset({'building', 'place', 'furniture', 'opening'})),
  (Phrase('behind', 'derrière'), frozenset({'building', 'furniture', 'opening'})),
  (Phrase('on', 'sur'), frozenset({'furniture'})),
  (Phrase('under', 'sous'), frozenset({'furniture'})),
)
# Short sentences are drawn more often, and so are "have" and participles that agree.
_ACTS = (
  *VERBS,
  *(verb for verb in VERBS if not verb.kinds),
  *[verb for verb in VERBS if verb.etre or verb.en == 'have'] * 2,
)
_FIXED = frozenset({'building', 'opening', 'place'})  # They are not on a table.
# Two actions on the same thing.
_CHAINS = (
  ('buy', 'eat'),
  ('find', 'wash'),
  ('choose', 'buy'),
  ('wash', 'sell'),
  ('take', 'close'),
  ('write', 'send'),
  ('buy', 'give'),
  ('take', 'show'),
  ('find', 'open'),
  ('buy', 'sell'),
)
_THINGS = frozenset(noun.kind for noun in NOUNS) - {'person', 'animal'}


class Writer:
  """Draws sentences from a generator of random numbers.

  Attributes:
    pairs: the (adjective, noun) and (verb, object) pairs of the latest sentence, in English.
  """

  def __init__(self, rng: Random):
    self._rng = rng
    self.pairs: set[tuple[str, str]] = set()
    self._nouns: set[str] = set()  # No noun occurs twice in a sentence.

  def sentence(self) -> tuple[str, str]:
    """Returns an English sentence and its French translation."""
    self.pairs, self._nouns = set(), set()
    pattern = self._rng.choice(_PATTERNS)
    mark, is_bare = '?' if pattern in _QUESTIONS else '.', self._chance(0.15)
    english, french = grammar.spell(
      pattern(self), '' if is_bare else mark, capital=not is_bare or self._chance(0.5)
    )
    return grammar.contract(english) if self._chance(0.5) else english, french

  def _chance(self, probability: float) -> bool:
    return self._rng.random() < probability

  def _verb(self, names: tuple[str, ...] = (), of: frozenset[str] = _THINGS) -> Verb:
    return self._rng.choice(
      [verb for verb in VERBS if verb.kinds & of and (not names or verb.en in names)]
    )

  def _thing(
    self,
    kinds: frozenset[str],
    verb: Verb | None = None,
    *,
    negated: bool = False,
    plain: bool = False,
  ) -> Nominal:
    """Draws a noun phrase; a plain one is definite and without adjectives."""
    noun = self._rng.choice(
      [noun for noun in NOUNS if noun.kind in kinds and noun.en not in self._nouns]
    )
    plural = self._chance(0.35)
    determiner = 'the' if plain else self._rng.choice(_DETERMINERS)
    if determiner == 'a' and plural and not negated and self._chance(0.5):
      determiner = self._rng.choice(('two', 'three'))
    adjectives = []
    if not plain and self._chance(0.5):
      suited = [adjective for adjective in ADJECTIVES if noun.kind in adjective.kinds]
      adjectives = [self._rng.choice(suited)]
      if adjectives[0].before and self._chance(0.4):
        adjectives.append(self._rng.choice([other for other in suited if not other.before]))
    self._nouns.add(noun.en)
    self.pairs |= {(word.en, noun.en) for word in (*adjectives, *filter(None, [verb]))}
    return grammar.noun_phrase(noun, determiner, adjectives, plural, negated)

  def _subject(self, verb: Verb | None = None, *, third: bool = False) -> Nominal:
    """Draws who acts: a pronoun, a name or a noun; `third` leaves out I, you and we."""
    if self._chance(0.4):
      return self._rng.choice(
        [pronoun for pronoun in _PRONOUNS if not third or pronoun.person in (1, 4)]
      )
    if self._chance(0.25):
      one, other = self._rng.sample(_NAMES, 2)
      return one.joined(other) if self._chance(0.2) else one
    kinds = frozenset({'person'}) | (verb.subjects if verb else frozenset())
    act = verb if verb and not verb.kinds else None
    one = self._thing(kinds, act)
    if self._chance(0.1):
      return one.joined(self._thing(frozenset({one.kind}), act))
    return one

  def _tense(self, verb: Verb, tenses: Sequence[str] = _TENSES) -> str:
    """Draws a tense; "they read" would be of two."""
    return self._rng.choice([tense for tense in tenses if tense != 'past' or verb.past != verb.en])

  def _place(self) -> Phrase:
    preposition, kinds = self._rng.choice(_WHERE)
    return preposition + self._thing(kinds, plain=self._chance(0.5))

  def _act(self, tense: str, verb: Verb, *, question: bool = False) -> Phrase:
    """Draws who does it, and what or where."""
    negated = self._chance(0.25)
    act = clause(self._subject(verb), verb, tense, negated=negated, question=question)
    if verb.kinds and not (verb.alone and self._chance(0.3)):
      return act + self._thing(verb.kinds, verb, negated=negated)
    return act + self._place() if self._chance(0.4) else act

  def _state(self, subject: Nominal, *, question: bool = False) -> Phrase:
    """Adds a form of "to be", and an adjective or a place."""
    start = grammar.be(
      subject, past=self._chance(0.3), negated=self._chance(0.25), question=question
    )
    if subject.kind not in _FIXED and self._chance(0.25):
      return start + self._place()
    adjective = self._rng.choice(
      [adjective for adjective in ADJECTIVES if subject.kind in adjective.kinds]
    )
    quality = Phrase(adjective.en, subject.agree(adjective.masculine, adjective.feminine))
    return start + self._rng.choice(_DEGREES) + quality

  def _described(self) -> Nominal:
    """Draws what a state is about."""
    return self._subject() if self._chance(0.4) else self._thing(_THINGS | {'animal'})

  def _statement(self) -> Phrase:
    """The dogs sleep in the garden; tomorrow, she will not open my door."""
    verb = self._rng.choice(_ACTS)
    tense = self._tense(verb)
    act = self._act(tense, verb)
    if tense not in _TIMES or self._chance(0.5):
      return act
    time = self._rng.choice(_TIMES[tense])
    return time + Phrase(',', ',') + act if self._chance(0.3) else act + time

  def _question(self) -> Phrase:
    """Will Paul eat an egg? Is the house big?"""
    verb = self._rng.choice(_ACTS)
    return Phrase('', 'est-ce que') + (
      self._state(self._described(), question=True)
      if self._chance(0.3)
      else self._act(self._tense(verb), verb, question=True)
    )

  def _where(self) -> Phrase:
    """Where are the cats?"""
    thing = self._thing(_THINGS | {'person', 'animal'})
    return (
      Phrase('where', 'où')
      + grammar.be(
        dataclasses.replace(thing, fr=''), past=self._chance(0.3), negated=False, question=True
      )
      + Phrase('', thing.fr)
    )

  def _description(self) -> Phrase:
    """The house is red; I was not in the garden."""
    return self._state(self._described())

  def _contrast(self) -> Phrase:
    """The green apples are too expensive, but the house was beautiful."""
    return self._description() + self._rng.choice(_LINKS) + self._description()

  def _meeting(self) -> Phrase:
    """He helped them; the dog cannot see me; I love you."""
    verb = self._verb(of=frozenset({'person'}))
    tense = self._tense(verb)
    subject = self._rng.choice(_PRONOUNS) if self._chance(0.4) else self._subject(verb)
    met = self._rng.choice(
      [
        pronoun
        for pronoun in _PRONOUNS
        if {pronoun.person, subject.person} & {1, 4}
        or (pronoun.person == 3) != (subject.person == 3)
      ]
    )
    pronoun = met.clitic()
    start = clause(
      subject, verb, tense, negated=self._chance(0.3), clitics=pronoun.fr, agrees_with=met
    )
    return start + Phrase(pronoun.en)

  def _gift(self) -> Phrase:
    """Marie gave a book to the child; the baker will not show us his hats."""
    verb, negated = self._verb(GIVING), self._chance(0.25)
    tense = self._tense(verb)
    dative = self._rng.choice(_DATIVES) if self._chance(0.5) else Phrase()
    start = clause(self._subject(third=True), verb, tense, negated=negated, clitics=dative.fr)
    gift = start + Phrase(dative.en) + self._thing(verb.kinds, verb, negated=negated)
    return gift if dative.en else gift + Phrase('to', 'à') + self._thing(frozenset({'person'}))

  def _chain(self) -> Phrase:
    """The baker bought a red chair and sold it; she takes the books and shows them to us."""
    first, then = (self._verb((name,)) for name in self._rng.choice(_CHAINS))
    tense, subject = self._rng.choice(('present', 'past')), self._subject(third=True)
    thing = self._thing(first.kinds & then.kinds, first)
    pronoun, to = thing.clitic(), Phrase()
    clitics = pronoun.fr
    if then.en in GIVING:
      dative = self._rng.choice(_DATIVES)
      clitics = (
        f'{pronoun.fr} {dative.fr}' if dative.fr in ('lui', 'leur') else f'{dative.fr} {pronoun.fr}'
      )
      to = Phrase(f'to {dative.en}')
    again = dataclasses.replace(subject, en='', fr='')
    return (
      clause(subject, first, tense)
      + thing
      + Phrase('and', 'et')
      + clause(again, then, tense, clitics=clitics, agrees_with=thing)
      + Phrase(pronoun.en)
      + to
    )

  def _relative(self) -> Phrase:
    """The apples that Marie ate were very good."""
    verb = self._verb()
    thing = self._thing(verb.kinds & _THINGS, verb, plain=True)
    act = (
      thing
      + Phrase('that', 'que')
      + clause(self._subject(verb), verb, self._tense(verb, ('present', 'past')), agrees_with=thing)
    )
    return self._state(dataclasses.replace(thing, en=act.en, fr=act.fr))

  def _reason(self) -> Phrase:
    """Paul does not buy the dress because it is too expensive."""
    verb = self._verb()
    thing = self._thing(verb.kinds & _THINGS, verb, plain=True)
    start = clause(self._subject(third=True), verb, negated=self._chance(0.5))
    return start + thing + Phrase('because', 'parce que') + self._state(thing.pronoun())


_QUESTIONS = (Writer._question, Writer._where)
_PATTERNS = (
  *(Writer._statement,) * 8,
  *(Writer._description,) * 2,
  *_QUESTIONS,
  Writer._contrast,
  *(Writer._meeting,) * 2,
  Writer._gift,
  *(Writer._chain,) * 2,
  *(Writer._relative,) * 2,
  Writer._reason,
)
