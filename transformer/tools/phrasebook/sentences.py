"""Samples sentences of several patterns; the docstring of a pattern is an example."""

import dataclasses

from transformer.tools.phrasebook import grammar
from transformer.tools.phrasebook.function_words import (
  CHAINS,
  DATIVES,
  LINKS,
  PRONOUNS,
  TIMES,
)
from transformer.tools.phrasebook.grammar import Phrase, clause
from transformer.tools.phrasebook.lexicon import GIVING, VERBS
from transformer.tools.phrasebook.sampling import PERSON, THINGS, PhraseSampler

# Short sentences, "have" and participles that agree are sampled more often.
_ACTS = (
  *VERBS,
  *(verb for verb in VERBS if not verb.kinds),
  *[verb for verb in VERBS if verb.etre or verb.en == 'have'] * 2,
)


class SentenceSampler(PhraseSampler):
  """Samples sentences."""

  def sentence(self) -> tuple[str, str]:
    """Returns an English sentence and its French translation."""
    self._begin()
    pattern = self._choice(_PATTERNS)
    is_bare = self._chance(0.15)
    mark = '.'
    if is_bare:
      mark = ''
    elif pattern in _QUESTIONS:
      mark = '?'
    phrase = pattern(self)
    capital = not is_bare or self._chance(0.5)
    english, french = grammar.to_text(phrase, mark, capital)
    if self._chance(0.5):
      english = grammar.contract(english)
    return english, french

  def _statement(self) -> Phrase:
    """The dogs sleep in the garden; tomorrow, she will not open my door."""
    verb = self._choice(_ACTS)
    tense = self._tense(verb)
    act = self._act(tense, verb)
    if tense not in TIMES or self._chance(0.5):
      return act
    time = self._choice(TIMES[tense])
    if self._chance(0.3):
      return time + Phrase(',', ',') + act
    return act + time

  def _question(self) -> Phrase:
    """Will Paul eat an egg? Is the house big?"""
    verb = self._choice(_ACTS)
    if self._chance(0.3):
      question = self._state(self._described(), question=True)
    else:
      question = self._act(self._tense(verb), verb, question=True)
    return Phrase('', 'est-ce que') + question

  def _where(self) -> Phrase:
    """Where are the cats?"""
    nominal = self._nominal(THINGS | {'person', 'animal'})
    english = dataclasses.replace(nominal, fr='')
    past = self._chance(0.3)
    be = grammar.be(english, past=past, negated=False, question=True)
    return Phrase('where', 'où') + be + Phrase('', nominal.fr)

  def _description(self) -> Phrase:
    """The house is red; I was not in the garden."""
    return self._state(self._described())

  def _contrast(self) -> Phrase:
    """The green apples are too expensive, but the house was beautiful."""
    return self._description() + self._choice(LINKS) + self._description()

  def _meeting(self) -> Phrase:
    """He helped them; the dog cannot see me; I love you."""
    verb = self._verb(of=PERSON)
    tense = self._tense(verb)
    subject = self._choice(PRONOUNS) if self._chance(0.4) else self._subject(verb)
    others = []
    for pronoun in PRONOUNS:
      is_third = pronoun.person in (1, 4) or subject.person in (1, 4)
      if is_third or (pronoun.person == 3) != (subject.person == 3):
        others.append(pronoun)
    met = self._choice(others)
    clitic = met.clitic()
    negated = self._chance(0.3)
    start = clause(
      subject, verb, tense, negated=negated, clitics=clitic.fr, agrees_with=met
    )
    return start + Phrase(clitic.en)

  def _gift(self) -> Phrase:
    """Marie gave a book to the child; the baker will not show us his hats."""
    verb = self._verb(GIVING)
    negated = self._chance(0.25)
    tense = self._tense(verb)
    dative = Phrase()
    if self._chance(0.5):
      dative = self._choice(DATIVES)
    subject = self._subject(third=True)
    start = clause(subject, verb, tense, negated=negated, clitics=dative.fr)
    nominal = self._nominal(verb.kinds, verb, negated=negated)
    gift = start + Phrase(dative.en) + nominal
    if dative.en:
      return gift
    return gift + Phrase('to', 'à') + self._nominal(PERSON)

  def _chain(self) -> Phrase:
    """The baker bought a red chair and sold it; she takes the books and shows them to us."""
    names = self._choice(CHAINS)
    first = self._verb(names[:1])
    then = self._verb(names[1:])
    tense = self._choice(('present', 'past'))
    subject = self._subject(third=True)
    nominal = self._nominal(first.kinds & then.kinds, first)
    pronoun = nominal.clitic()
    clitics = pronoun.fr
    english = pronoun.en
    if then.en in GIVING:
      dative = self._choice(DATIVES)
      english = f'{english} to {dative.en}'
      clitics = f'{dative.fr} {clitics}'
      if dative.fr in ('lui', 'leur'):
        clitics = f'{pronoun.fr} {dative.fr}'
    nobody = dataclasses.replace(subject, en='', fr='')
    second_act = clause(nobody, then, tense, clitics=clitics, agrees_with=nominal)
    first_act = clause(subject, first, tense) + nominal
    return first_act + Phrase('and', 'et') + second_act + Phrase(english)

  def _relative(self) -> Phrase:
    """The apples that Marie ate were very good."""
    verb = self._verb()
    nominal = self._nominal(verb.kinds & THINGS, verb, plain=True)
    subject = self._subject(verb)
    tense = self._tense(verb, ('present', 'past'))
    act = clause(subject, verb, tense, agrees_with=nominal)
    described = nominal + Phrase('that', 'que') + act
    return self._state(dataclasses.replace(nominal, en=described.en, fr=described.fr))

  def _reason(self) -> Phrase:
    """Paul does not buy the dress because it is too expensive."""
    verb = self._verb()
    nominal = self._nominal(verb.kinds & THINGS, verb, plain=True)
    subject = self._subject(third=True)
    start = clause(subject, verb, negated=self._chance(0.5))
    because = Phrase('because', 'parce que')
    return start + nominal + because + self._state(nominal.pronoun())


_QUESTIONS = (SentenceSampler._question, SentenceSampler._where)
_PATTERNS = (
  *(SentenceSampler._statement,) * 8,
  *(SentenceSampler._description,) * 2,
  *_QUESTIONS,
  SentenceSampler._contrast,
  *(SentenceSampler._meeting,) * 2,
  SentenceSampler._gift,
  *(SentenceSampler._chain,) * 2,
  *(SentenceSampler._relative,) * 2,
  SentenceSampler._reason,
)
