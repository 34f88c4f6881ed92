"""Samples the parts of sentences: who, what, where and when."""

from collections.abc import Sequence
from random import Random

from transformer.tools.phrasebook import grammar
from transformer.tools.phrasebook.function_words import (
  DEGREES,
  DETERMINERS,
  NAMES,
  PRONOUNS,
  WHERE,
)
from transformer.tools.phrasebook.grammar import TENSES, Nominal, Phrase, clause
from transformer.tools.phrasebook.lexicon import (
  ADJECTIVES,
  NOUNS,
  VERBS,
  Adjective,
  Verb,
)

_TENSES = ('present', 'past', *TENSES)  # Simple tenses are sampled more often.
_FIXED = frozenset({'building', 'opening', 'place'})  # These are not placed on a table.
PERSON = frozenset({'person'})
THINGS = frozenset(noun.kind for noun in NOUNS) - {'person', 'animal'}


class PhraseSampler:
  """Samples parts of sentences with a random number generator.

  Attributes:
    pairs: the (adjective, noun) and (verb, object) pairs of the latest sentence, in English.
  """

  def __init__(self, rng: Random):
    self._rng = rng
    self._begin()

  def _begin(self):
    """Clears the words of the previous sentence."""
    self.pairs: set[tuple[str, str]] = set()
    self._nouns: set[str] = set()  # No noun occurs twice in a sentence.

  def _chance(self, probability: float) -> bool:
    return self._rng.random() < probability

  def _choice(self, values: Sequence):
    return self._rng.choice(values)

  def _verb(self, names: Sequence[str] = (), of: frozenset[str] = THINGS) -> Verb:
    """Samples a verb with objects of the given kinds, and in `names` if given."""
    verbs = [verb for verb in VERBS if verb.kinds & of]
    if names:
      verbs = [verb for verb in verbs if verb.en in names]
    return self._choice(verbs)

  def _nominal(
    self,
    kinds: frozenset[str],
    verb: Verb | None = None,
    *,
    negated: bool = False,
    plain: bool = False,
  ) -> Nominal:
    """Samples a noun phrase; a plain one is definite and without adjectives."""
    nouns = [noun for noun in NOUNS if noun.kind in kinds]
    noun = self._choice([noun for noun in nouns if noun.en not in self._nouns])
    plural = self._chance(0.35)
    determiner = 'the'
    if not plain:
      determiner = self._choice(DETERMINERS)
    if determiner == 'a' and plural and not negated and self._chance(0.5):
      determiner = self._choice(('two', 'three'))
    adjectives = []
    if not plain and self._chance(0.5):
      adjectives = self._adjectives(noun.kind)
    self._nouns.add(noun.en)
    for adjective in adjectives:
      self.pairs.add((adjective.en, noun.en))
    if verb:
      self.pairs.add((verb.en, noun.en))
    return grammar.noun_phrase(noun, determiner, adjectives, plural, negated)

  def _adjectives(self, kind: str) -> list[Adjective]:
    """Samples an adjective for a kind of noun, or one before the noun and one after it."""
    candidates = _adjectives_of(kind)
    adjective = self._choice(candidates)
    if not adjective.before or not self._chance(0.4):
      return [adjective]
    following = [other for other in candidates if not other.before]
    return [adjective, self._choice(following)]

  def _subject(self, verb: Verb | None = None, *, third: bool = False) -> Nominal:
    """Samples a subject: a pronoun, a name or a noun; `third` excludes I, you and we."""
    if self._chance(0.4):
      pronouns = PRONOUNS
      if third:
        pronouns = [pronoun for pronoun in PRONOUNS if pronoun.person in (1, 4)]
      return self._choice(pronouns)
    if self._chance(0.25):
      name, other_name = self._rng.sample(NAMES, 2)
      if self._chance(0.2):
        return name.joined(other_name)
      return name
    kinds = PERSON
    act = None
    if verb:
      kinds = PERSON | verb.subjects
      if not verb.kinds:
        act = verb
    one = self._nominal(kinds, act)
    if not self._chance(0.1):
      return one
    other = self._nominal(frozenset({one.kind}), act)
    return one.joined(other)

  def _tense(self, verb: Verb, tenses: Sequence[str] = _TENSES) -> str:
    """Samples a tense; excludes the past if the verb's form is ambiguous, as in "they read"."""
    if verb.past == verb.en:
      tenses = [tense for tense in tenses if tense != 'past']
    return self._choice(tenses)

  def _place(self) -> Phrase:
    """Samples a place."""
    preposition, kinds = self._choice(WHERE)
    plain = self._chance(0.5)
    return preposition + self._nominal(kinds, plain=plain)

  def _act(self, tense: str, verb: Verb, *, question: bool = False) -> Phrase:
    """Samples a subject and a verb, with an object or a place."""
    negated = self._chance(0.25)
    subject = self._subject(verb)
    act = clause(subject, verb, tense, negated=negated, question=question)
    if verb.kinds and not (verb.alone and self._chance(0.3)):
      return act + self._nominal(verb.kinds, verb, negated=negated)
    if self._chance(0.4):
      return act + self._place()
    return act

  def _state(self, subject: Nominal, *, question: bool = False) -> Phrase:
    """Adds a form of "to be", and an adjective or a place."""
    past = self._chance(0.3)
    negated = self._chance(0.25)
    start = grammar.be(subject, past=past, negated=negated, question=question)
    if subject.kind not in _FIXED and self._chance(0.25):
      return start + self._place()
    adjective = self._choice(_adjectives_of(subject.kind))
    french = subject.agree(adjective.masculine, adjective.feminine)
    return start + self._choice(DEGREES) + Phrase(adjective.en, french)

  def _described(self) -> Nominal:
    """Samples the subject of a state."""
    if self._chance(0.4):
      return self._subject()
    return self._nominal(THINGS | {'animal'})


def _adjectives_of(kind: str) -> list[Adjective]:
  """Returns the adjectives that suit a kind of noun."""
  return [adjective for adjective in ADJECTIVES if kind in adjective.kinds]
