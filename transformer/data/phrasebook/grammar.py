"""Builds phrases from words: agreement, determiners, verb groups, elision, contraction.

A `Phrase` holds the same meaning in both languages. It also records the (word, noun) pairs
that it combines, because `corpus` holds out sentences by these pairs. Tokens stay uncontracted
(`à le église`) until `spell` writes the sentence and knows which words meet.

Four rules make French a function of English: `you` is always vous; `they` or `them` without
a noun is masculine; no participle or adjective agrees with I, you or we; `it` always follows
its noun in the same sentence.
"""

import dataclasses
from collections.abc import Sequence

from transformer.data.phrasebook.lexicon import Adjective, Noun, Verb, elides, plural_of
from transformer.data.phrasebook.verbs import CAN, ETRE, GO, HAVE, MUST, WANT

# Masculine, feminine, plural. A feminine possessive is masculine before a vowel: mon orange.
DETERMINERS = {
  'the': ('le', 'la', 'les'), 'this': ('ce', 'cette', 'ces'), 'a': ('un', 'une', 'des'),
  'my': ('mon', 'ma', 'mes'), 'your': ('votre', 'votre', 'vos'), 'his': ('son', 'sa', 'ses'),
  'her': ('son', 'sa', 'ses'), 'our': ('notre', 'notre', 'nos'),
  'their': ('leur', 'leur', 'leurs'), 'what a': ('quel', 'quelle', 'quels'),
}
NUMBERS = {'two': 'deux', 'three': 'trois', 'four': 'quatre', 'five': 'cinq'}
_LIAISON = {'ce': 'cet', 'ma': 'mon', 'sa': 'son'}
_ELIDED = ('le', 'la', 'je', 'ne', 'de', 'que', 'me')
_CONTRACTED = {('de', 'le'): 'du', ('de', 'les'): 'des', ('à', 'le'): 'au', ('à', 'les'): 'aux'}
TENSES = ('present', 'habit', 'past', 'future', 'want', 'can', 'must')


@dataclasses.dataclass(frozen=True)
class Phrase:
  """Tokens of the same meaning in both languages, and the (word, noun) pairs in them."""

  en: tuple[str, ...] = ()
  fr: tuple[str, ...] = ()
  pairs: frozenset[tuple[str, str]] = frozenset()

  def __add__(self, other: 'Phrase') -> 'Phrase':
    return Phrase(self.en + other.en, self.fr + other.fr, self.pairs | other.pairs)


@dataclasses.dataclass(frozen=True)
class Nominal(Phrase):
  """A subject or object: a noun phrase, a name or a pronoun.

  Attributes:
    person: index into a verb's present: 0 je, 1 il, 2 nous, 3 vous, 4 ils.
    gender: `m` or `f`.
    head: the noun, or None for names and pronouns.
    animate: whether its English pronoun is he or she, not it.
  """

  person: int = 1
  gender: str = 'm'
  head: Noun | None = None
  animate: bool = True

  @property
  def plural(self) -> bool:
    """Returns whether it needs plural agreement."""
    return self.person in (2, 4)


def words(en: str, fr: str) -> Phrase:
  """Returns a fixed phrase, such as a preposition or an adverb."""
  return Phrase(tuple(en.split()), tuple(fr.split()))


def noun_phrase(noun: Noun, determiner: str = 'the', *, plural: bool = False,
                adjectives: Sequence[Adjective] = (), negated: bool = False) -> Nominal:
  """Returns a determiner, adjectives and a noun.

  `determiner` is a key of `DETERMINERS` or `NUMBERS`, `many`, or `generic` (apples, les
  pommes). `a` becomes `some` before a plural or mass noun, or `any` if `negated`. A negated
  `a` is de in French (pas de pain). French puts some adjectives after the noun.
  """
  before = [a.form(noun.gender, plural) for a in adjectives if a.before]
  after = [a.form(noun.gender, plural) for a in adjectives if not a.before]
  noun_fr = noun.fr_plural if plural else noun.fr
  if before and not plural and noun.gender == 'm' and elides(noun_fr):
    before = [a.liaison for a in adjectives if a.before]
  group = [*before, noun_fr, *after]
  countless = plural or noun.mass
  if determiner in NUMBERS:
    en_determiner, fr_determiner = [determiner], [NUMBERS[determiner]]
  elif determiner == 'many':
    en_determiner, fr_determiner = ['many'], ['beaucoup', 'de']
  elif determiner == 'generic':
    en_determiner, fr_determiner = [], [_article('the', noun, plural, group[0])]
  elif determiner == 'a' and (countless or negated):
    en_determiner = [('any' if negated else 'some') if countless else 'a']
    if negated or (plural and before):
      fr_determiner = ['de']
    elif plural:
      fr_determiner = ['des']
    else:
      fr_determiner = ['de', _article('the', noun, plural, group[0])]
  else:
    en_determiner = ['these' if plural and determiner == 'this' else determiner]
    fr_determiner = [_article(determiner, noun, plural, group[0])]
  return Nominal(
    (*en_determiner, *(a.en for a in adjectives), noun.en_plural if plural else noun.en),
    (*fr_determiner, *group), frozenset((a.en, noun.en) for a in adjectives),
    4 if plural else 1, noun.gender, noun,
    'person' in noun.kinds or 'animal' in noun.kinds)


def _article(determiner: str, noun: Noun, plural: bool, following: str) -> str:
  masculine, feminine, many = DETERMINERS[determiner]
  if plural:
    return many
  form = feminine if noun.gender == 'f' else masculine
  return _LIAISON.get(form, form) if elides(following) else form


def owned(thing: Nominal, owner: Nominal) -> Nominal:
  """Returns a thing and its owner (the king's castle); `thing` begins with `the`."""
  en = (*owner.en[:-1], owner.en[-1] + "'s", *thing.en[1:])
  return dataclasses.replace(thing, en=en, fr=(*thing.fr, 'de', *owner.fr),
                             pairs=thing.pairs | owner.pairs)


def agree(participle: str, gender: str, plural: bool) -> str:
  """Returns the form of a participle: allé, allée, allés or allées."""
  form = participle + 'e' if gender == 'f' else participle
  return plural_of(form) if plural else form


def _english_verb(subject: Nominal, verb: Verb, tense: str, inverted: bool
                  ) -> tuple[str, list[str]]:
  """Returns the auxiliary, or '' if none is necessary, and the words after it.

  `inverted` requires an auxiliary even if a plain statement has none: did she go.
  """
  third = subject.person == 1
  if tense in ('can', 'must'):
    return tense, [verb.en]
  if tense == 'past':
    return ('did', [verb.en]) if inverted else ('', [verb.past])
  if tense == 'future' or (tense == 'present' and not verb.stative):
    auxiliary = 'am' if subject.person == 0 else 'is' if third else 'are'
    return auxiliary, ['going', 'to', verb.en] if tense == 'future' else [verb.ing]
  finite, tail = (WANT, ['to', verb.en]) if tense == 'want' else (verb, [])
  if inverted:
    return ('does' if third else 'do'), [finite.en, *tail]
  return '', [finite.third if third else finite.en, *tail]


def verb_group(subject: Nominal, verb: Verb, tense: str, *, negation: str = '',
               question: bool = False, clitics: Sequence[str] = (),
               agreement: tuple[str, bool] | None = None) -> Phrase:
  """Returns a subject and its verb; the caller adds the object.

  Args:
    subject: a noun phrase, a name or a pronoun.
    verb: a verb of the lexicon.
    tense: one of `TENSES`.
    negation: '', `not` or `never`.
    question: inverts English; French keeps the order of a statement, as after est-ce que.
    clitics: French object pronouns, in order; the caller adds the English ones.
    agreement: the gender of a direct object before its participle, and whether the object
      is plural (la pomme que j'ai mangée).

  Raises:
    ValueError: the participle would agree with I, you or we, so English does not determine it.
  """
  auxiliary, tail = _english_verb(subject, verb, tense, question or negation == 'not')
  lead = (*subject.en, auxiliary) if auxiliary else subject.en
  if question:
    lead = (auxiliary, *subject.en)
  en = (*lead, *([negation] if negation else []), *tail)

  person = subject.person
  pas = {'': (), 'not': ('pas',), 'never': ('jamais',)}[negation]
  ne = ('ne',) if negation else ()
  if tense in ('present', 'habit'):
    fr = (*ne, *clitics, verb.present[person], *pas)
  elif tense == 'past':
    if verb.etre and person in (0, 2, 3):
      raise ValueError(f'a participle must not agree with I, you or we; got {verb.en!r} '
                       f'of {" ".join(subject.en)!r}')
    finite = ETRE[person] if verb.etre else HAVE.present[person]
    if verb.etre:
      agreement = (subject.gender, subject.plural)
    participle = agree(verb.participle, *agreement) if agreement else verb.participle
    fr = (*ne, *clitics, finite, *pas, participle)
  else:
    modal = {'future': GO, 'want': WANT, 'can': CAN, 'must': MUST}[tense]
    fr = (*ne, modal.present[person], *pas, *clitics, verb.infinitive)
  return Phrase(en, (*subject.fr, *fr), subject.pairs)


def spell(phrase: Phrase, mark: str) -> tuple[str, str]:
  """Returns a phrase as an English and a French sentence that end in `mark` (. ? or !)."""
  en = list(phrase.en)
  for i, word in enumerate(en[:-1]):
    if word in ('a', 'what a') and en[i + 1][0] in 'aeiouAEIOU':
      en[i] = word + 'n'
  fr: list[str] = []
  for token in reversed(phrase.fr):
    following = fr[-1] if fr else ','
    if (token, following) in _CONTRACTED:
      fr[-1] = _CONTRACTED[token, following]
    elif token in _ELIDED and elides(following):
      fr[-1] = token[:-1] + "'" + following
    else:
      fr.append(token)
  space = '' if mark == '.' else ' '
  return _sentence(en) + mark, _sentence(fr[::-1]) + space + mark


def _sentence(tokens: Sequence[str]) -> str:
  text = ' '.join(tokens).replace(' ,', ',').replace('can not ', 'cannot ')
  return text[0].upper() + text[1:]
