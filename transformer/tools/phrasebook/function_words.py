"""The pronouns, names, prepositions and adverbs of the phrasebook, in both languages.

In an entry, French words follow English ones after a slash; a colon separates the parts of a line.
"""

from transformer.tools.phrasebook.grammar import Nominal, Phrase


def _phrases(text: str) -> tuple[Phrase, ...]:
  """Returns phrases from a text such as `me/me; us/nous`."""
  return tuple(Phrase(*entry.split('/')) for entry in text.split('; '))


# The determiners of noun phrases; repeated ones are sampled more often.
DETERMINERS = (
  'the',
  'the',
  'the',
  'a',
  'a',
  'this',
  'my',
  'your',
  'his',
  'her',
  'our',
  'their',
)
PRONOUNS = (
  Nominal('I', 'je', 0),
  Nominal('he', 'il'),
  Nominal('she', 'elle', gender='f'),
  Nominal('we', 'nous', 2),
  Nominal('you', 'vous', 3),
  Nominal('they', 'ils', 4),
)
NAMES = (
  *(Nominal(name, name) for name in ('Paul', 'Antoine', 'Louis')),
  *(Nominal(name, name, gender='f') for name in ('Marie', 'Alice', 'Sophie')),
)
# Recipients: after an English verb, and before a French one.
DATIVES = _phrases('me/me; us/nous; you/vous; him/lui; her/lui; them/leur')
TIMES = {
  'present': _phrases('every day/tous les jours; on Sundays/le dimanche'),
  'past': _phrases('yesterday/hier; last week/la semaine dernière'),
  'will': _phrases('tomorrow/demain; tonight/ce soir'),
}
DEGREES = _phrases('/; /; very/très; too/trop')
LINKS = _phrases(', but/, mais; , and/, et')
# Where something is or happens, with the kinds of places.
_WHERE = """
  in/dans: building place
  near/près de: building place furniture opening
  behind/derrière: building furniture opening
  on/sur: furniture
  under/sous: furniture"""
WHERE = tuple(
  (Phrase(*words.split('/')), frozenset(kinds.split()))
  for words, kinds in (line.strip().split(': ') for line in _WHERE.strip().split('\n'))
)
# Two actions on the same thing.
_CHAINS = (
  'buy eat, find wash, choose buy, wash sell, take close, write send, buy give, take show, '
  'find open, buy sell'
)
CHAINS = tuple(tuple(pair.split()) for pair in _CHAINS.split(', '))
