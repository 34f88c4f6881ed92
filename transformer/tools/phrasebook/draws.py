"""Draws the parts of sentences: who, what, where and when."""

from collections.abc import Sequence
from random import Random

from transformer.tools.phrasebook import grammar
from transformer.tools.phrasebook.grammar import TENSES, Nominal, Phrase, clause
from transformer.tools.phrasebook.small_words import (
  DEGREES,
  DETERMINERS,
  NAMES,
  PRONOUNS,
  WHERE,
)
from transformer.tools.phrasebook.words import ADJECTIVES, NOUNS, VERBS, Verb

_TENSES = ('present', 'past', *TENSES)  # The simple ones are drawn more often.
_FIXED = frozenset({'building', 'opening', 'place'})  # They are not on a table.
PERSON = frozenset({'person'})
THINGS = frozenset(noun.kind for noun in NOUNS) - {'person', 'animal'}


class Draws:
  """Draws parts of sentences from a generator of random numbers.

  Attributes:
    pairs: the (adjective, noun) and (verb, object) pairs of the latest sentence, in English.
  """

  def __init__(self, rng: Random):
    self._rng = rng
    self._begin()

  def _begin(self):
    """Forgets the words of the sentence before."""
    self.pairs: set[tuple[str, str]] = set()
    self._nouns: set[str] = set()  # No noun occurs twice in a sentence.

  def _chance(self, probability: float) -> bool:
    return self._rng.random() < probability

  def _verb(self, names: tuple[str, ...] = (), of: frozenset[str] = THINGS) -> Verb:
    """Draws a verb with objects of some kinds, and of some names if any are given."""
    verbs = [
      verb for verb in VERBS if verb.kinds & of and (not names or verb.en in names)
    ]
    return self._rng.choice(verbs)

  def _thing(
    self,
    kinds: frozenset[str],
    verb: Verb | None = None,
    *,
    negated: bool = False,
    plain: bool = False,
  ) -> Nominal:
    """Draws a noun phrase; a plain one is definite and without adjectives."""
    nouns = [
      noun for noun in NOUNS if noun.kind in kinds and noun.en not in self._nouns
    ]
    noun = self._rng.choice(nouns)
    plural = self._chance(0.35)
    determiner = 'the' if plain else self._rng.choice(DETERMINERS)
    if determiner == 'a' and plural and not negated and self._chance(0.5):
      determiner = self._rng.choice(('two', 'three'))
    adjectives = []
    if not plain and self._chance(0.5):
      suited = [adjective for adjective in ADJECTIVES if noun.kind in adjective.kinds]
      adjectives.append(self._rng.choice(suited))
      if adjectives[0].before and self._chance(0.4):
        after = [adjective for adjective in suited if not adjective.before]
        adjectives.append(self._rng.choice(after))
    self._nouns.add(noun.en)
    self.pairs |= {(adjective.en, noun.en) for adjective in adjectives}
    if verb:
      self.pairs.add((verb.en, noun.en))
    return grammar.noun_phrase(noun, determiner, adjectives, plural, negated)

  def _subject(self, verb: Verb | None = None, *, third: bool = False) -> Nominal:
    """Draws who acts: a pronoun, a name or a noun; `third` leaves out I, you and we."""
    if self._chance(0.4):
      pronouns = [
        pronoun for pronoun in PRONOUNS if not third or pronoun.person in (1, 4)
      ]
      return self._rng.choice(pronouns)
    if self._chance(0.25):
      one, other = self._rng.sample(NAMES, 2)
      return one.joined(other) if self._chance(0.2) else one
    kinds = PERSON | verb.subjects if verb else PERSON
    act = verb if verb and not verb.kinds else None
    one = self._thing(kinds, act)
    if self._chance(0.1):
      return one.joined(self._thing(frozenset({one.kind}), act))
    return one

  def _tense(self, verb: Verb, tenses: Sequence[str] = _TENSES) -> str:
    """Draws a tense; "they read" would be of two."""
    clear = [tense for tense in tenses if tense != 'past' or verb.past != verb.en]
    return self._rng.choice(clear)

  def _place(self) -> Phrase:
    """Draws where something is."""
    preposition, kinds = self._rng.choice(WHERE)
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
    past = self._chance(0.3)
    start = grammar.be(
      subject, past=past, negated=self._chance(0.25), question=question
    )
    if subject.kind not in _FIXED and self._chance(0.25):
      return start + self._place()
    suited = [adjective for adjective in ADJECTIVES if subject.kind in adjective.kinds]
    adjective = self._rng.choice(suited)
    quality = Phrase(
      adjective.en, subject.agree(adjective.masculine, adjective.feminine)
    )
    return start + self._rng.choice(DEGREES) + quality

  def _described(self) -> Nominal:
    """Draws what a state is about."""
    if self._chance(0.4):
      return self._subject()
    return self._thing(THINGS | {'animal'})
