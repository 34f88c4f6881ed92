"""The words of the phrasebook: nouns, adjectives and verbs, with their forms in both languages.

Nouns carry `kinds`; adjectives and verbs list the kinds that they go with, so that doors are
opened and soup is hot, never the reverse. Two words never share an English form that the two
languages would tell apart, which keeps French a function of English. There is no aspirated h:
every h elides.
"""

import dataclasses

VOWELS = 'aeiouyhàâéèêîôœ'


def elides(word: str) -> bool:
  """Whether a word makes the one before it elide (l', d', cet, mon): vowel or mute h."""
  return word[0].lower() in VOWELS


def plural_of(word: str, ending: str = 's') -> str:
  """French plural of a noun, adjective or participle; s and x take no further ending."""
  return word if word[-1] in 'sx' else word + ending


@dataclasses.dataclass(frozen=True)
class Noun:
  """A noun: both numbers in both languages, French gender (`m`, `f`), and what kinds it is."""

  en: str
  en_plural: str
  fr: str
  fr_plural: str
  gender: str
  kinds: frozenset[str]

  @property
  def mass(self) -> bool:
    """Whether it is uncountable: some bread, du pain."""
    return 'mass' in self.kinds


@dataclasses.dataclass(frozen=True)
class Adjective:
  """An adjective: its four French forms, `liaison` before a masculine vowel, and its place.

  `before` puts it before the French noun; `last` marks colours and origins, which may
  follow another adjective in English (a beautiful red dress).
  """

  en: str
  masculine: str
  feminine: str
  masculine_plural: str
  liaison: str
  kinds: frozenset[str]
  before: bool = False
  last: bool = False

  def form(self, gender: str, plural: bool) -> str:
    """The French form that agrees with a gender and a number."""
    if gender == 'f':
      return plural_of(self.feminine) if plural else self.feminine
    return self.masculine_plural if plural else self.masculine


@dataclasses.dataclass(frozen=True)
class Verb:
  """A verb: English forms, the French present for je, il, nous, vous, ils, and its objects.

  `stative` verbs take the simple present in English where others take the progressive;
  `etre` verbs form the passé composé with être and agree with their subject.
  """

  en: str
  third: str
  ing: str
  past: str
  infinitive: str
  present: tuple[str, ...]
  participle: str
  kinds: frozenset[str] = frozenset()
  stative: bool = False
  etre: bool = False


def _noun(en: str, fr: str, gender: str, kinds: str, *, en_plural: str = '',
          fr_plural: str = '') -> Noun:
  return Noun(en, en_plural or en + 's', fr, fr_plural or plural_of(fr), gender,
              frozenset(kinds.split()))


def _adjective(en: str, masculine: str, kinds: str, *, feminine: str = '', plural: str = '',
               liaison: str = '', before: bool = False, last: bool = False) -> Adjective:
  feminine = feminine or masculine + ('' if masculine.endswith('e') else 'e')
  return Adjective(en, masculine, feminine, plural or plural_of(masculine),
                   liaison or masculine, frozenset(kinds.split()), before, last)


def make_verb(english: str, infinitive: str, present: str = '', participle: str = '', *,
              kinds: str = '', particle: str = '', strong: str = '', stative: bool = False,
              etre: bool = False) -> Verb:
  """Builds a verb; without `present` it is an -er verb, `strong` its stem in je, il and ils."""
  stem = infinitive[:-2]
  strong = strong or stem
  soft = stem + 'e' if stem.endswith('g') else stem
  forms = present.split() or [strong + 'e', strong + 'e', soft + 'ons', stem + 'ez', strong + 'ent']
  base, third, ing, past = (f'{form} {particle}'.strip() for form in english.split())
  return Verb(base, third, ing, past, infinitive, tuple(forms), participle or stem + 'é',
              frozenset(kinds.split()), stative, etre)


NOUNS = (
  _noun('man', 'homme', 'm', 'person adult', en_plural='men'),
  _noun('woman', 'femme', 'f', 'person adult', en_plural='women'),
  _noun('child', 'enfant', 'm', 'person', en_plural='children'),
  _noun('girl', 'fille', 'f', 'person'),
  _noun('boy', 'garçon', 'm', 'person'),
  _noun('teacher', 'professeur', 'm', 'person worker'),
  _noun('doctor', 'médecin', 'm', 'person worker'),
  _noun('baker', 'boulanger', 'm', 'person worker'),
  _noun('nurse', 'infirmière', 'f', 'person worker', en_plural='nurses'),
  _noun('actress', 'actrice', 'f', 'person worker', en_plural='actresses'),
  _noun('student', 'étudiant', 'm', 'person worker'),
  _noun('neighbour', 'voisin', 'm', 'person worker'),
  _noun('friend', 'ami', 'm', 'person worker'),
  _noun('sister', 'sœur', 'f', 'person relative'),
  _noun('brother', 'frère', 'm', 'person relative'),
  _noun('aunt', 'tante', 'f', 'person relative'),
  _noun('uncle', 'oncle', 'm', 'person relative'),
  _noun('cat', 'chat', 'm', 'animal pet'),
  _noun('dog', 'chien', 'm', 'animal pet'),
  _noun('horse', 'cheval', 'm', 'animal', fr_plural='chevaux'),
  _noun('bird', 'oiseau', 'm', 'animal pet', fr_plural='oiseaux'),
  _noun('cow', 'vache', 'f', 'animal'),
  _noun('rabbit', 'lapin', 'm', 'animal pet'),
  _noun('apple', 'pomme', 'f', 'food'),
  _noun('orange', 'orange', 'f', 'food'),
  _noun('egg', 'œuf', 'm', 'food'),
  _noun('cake', 'gâteau', 'm', 'food', fr_plural='gâteaux'),
  _noun('tomato', 'tomate', 'f', 'food', en_plural='tomatoes'),
  _noun('bread', 'pain', 'm', 'mass meal'),
  _noun('cheese', 'fromage', 'm', 'mass meal'),
  _noun('meat', 'viande', 'f', 'mass meal'),
  _noun('soup', 'soupe', 'f', 'mass meal'),
  _noun('water', 'eau', 'f', 'mass drink'),
  _noun('milk', 'lait', 'm', 'mass drink'),
  _noun('coffee', 'café', 'm', 'mass drink'),
  _noun('tea', 'thé', 'm', 'mass drink'),
  _noun('beer', 'bière', 'f', 'mass drink'),
  _noun('hat', 'chapeau', 'm', 'clothing', fr_plural='chapeaux'),
  _noun('coat', 'manteau', 'm', 'clothing', fr_plural='manteaux'),
  _noun('dress', 'robe', 'f', 'clothing', en_plural='dresses'),
  _noun('shirt', 'chemise', 'f', 'clothing'),
  _noun('scarf', 'écharpe', 'f', 'clothing', en_plural='scarves'),
  _noun('book', 'livre', 'm', 'reading paper text'),
  _noun('letter', 'lettre', 'f', 'reading paper text'),
  _noun('poem', 'poème', 'm', 'reading text'),
  _noun('story', 'histoire', 'f', 'reading text', en_plural='stories'),
  _noun('newspaper', 'journal', 'm', 'reading paper', fr_plural='journaux'),
  _noun('bag', 'sac', 'm', 'container'),
  _noun('box', 'boîte', 'f', 'container', en_plural='boxes'),
  _noun('bottle', 'bouteille', 'f', 'container'),
  _noun('table', 'table', 'f', 'furniture support cover'),
  _noun('chair', 'chaise', 'f', 'furniture support cover'),
  _noun('bed', 'lit', 'm', 'furniture support cover'),
  _noun('wardrobe', 'armoire', 'f', 'furniture'),
  _noun('car', 'voiture', 'f', 'machine'),
  _noun('bicycle', 'vélo', 'm', 'machine'),
  _noun('boat', 'bateau', 'm', 'machine', fr_plural='bateaux'),
  _noun('umbrella', 'parapluie', 'm', 'machine'),
  _noun('door', 'porte', 'f', 'opening'),
  _noun('window', 'fenêtre', 'f', 'opening'),
  _noun('tree', 'arbre', 'm', 'plant cover'),
  _noun('flower', 'fleur', 'f', 'plant'),
  _noun('house', 'maison', 'f', 'place building inside goal'),
  _noun('church', 'église', 'f', 'place building inside goal', en_plural='churches'),
  _noun('school', 'école', 'f', 'place building inside goal'),
  _noun('hotel', 'hôtel', 'm', 'place building inside goal'),
  _noun('hospital', 'hôpital', 'm', 'place building goal', fr_plural='hôpitaux'),
  _noun('restaurant', 'restaurant', 'm', 'place building inside goal'),
  _noun('castle', 'château', 'm', 'place building inside goal', fr_plural='châteaux'),
  _noun('station', 'gare', 'f', 'place building goal'),
  _noun('market', 'marché', 'm', 'place goal'),
  _noun('garden', 'jardin', 'm', 'place inside'),
  _noun('park', 'parc', 'm', 'place inside goal'),
  _noun('village', 'village', 'm', 'place inside goal'),
  _noun('beach', 'plage', 'f', 'place goal', en_plural='beaches'),
)

_OBJECTS = 'clothing container furniture machine'
_GOODS = f'{_OBJECTS} food paper'
_DYED = f'{_OBJECTS} opening'

ADJECTIVES = (
  _adjective('small', 'petit', f'{_DYED} person animal food place plant', before=True),
  _adjective('big', 'grand', f'{_DYED} animal place', before=True),
  _adjective('beautiful', 'beau', 'animal clothing furniture machine place plant', before=True,
             feminine='belle', plural='beaux', liaison='bel'),
  _adjective('pretty', 'joli', 'clothing furniture place plant', before=True),
  _adjective('old', 'vieux', f'{_DYED} adult worker relative animal place reading', before=True,
             feminine='vieille', liaison='vieil'),
  _adjective('new', 'nouveau', f'{_OBJECTS} worker building reading', before=True,
             feminine='nouvelle', plural='nouveaux', liaison='nouvel'),
  _adjective('young', 'jeune', 'person', before=True),
  _adjective('good', 'bon', 'food mass worker reading', before=True, feminine='bonne'),
  _adjective('bad', 'mauvais', 'food mass reading', before=True),
  _adjective('long', 'long', 'reading', before=True, feminine='longue'),
  _adjective('white', 'blanc', f'{_DYED} animal', feminine='blanche', last=True),
  _adjective('black', 'noir', f'{_DYED} animal', last=True),
  _adjective('grey', 'gris', f'{_DYED} animal', last=True),
  _adjective('red', 'rouge', _DYED, last=True),
  _adjective('green', 'vert', _DYED, last=True),
  _adjective('blue', 'bleu', _DYED, last=True),
  _adjective('yellow', 'jaune', _DYED, last=True),
  _adjective('French', 'français', 'worker reading', last=True),
  _adjective('English', 'anglais', 'worker reading', last=True),
  _adjective('Italian', 'italien', 'worker reading', feminine='italienne', last=True),
  _adjective('expensive', 'cher', f'{_GOODS} mass building', feminine='chère'),
  _adjective('dirty', 'sale', f'{_DYED} animal'),
  _adjective('clean', 'propre', _DYED),
  _adjective('empty', 'vide', 'container building'),
  _adjective('fresh', 'frais', 'food', feminine='fraîche'),
  _adjective('hot', 'chaud', 'mass'),
  _adjective('cold', 'froid', 'mass'),
  _adjective('interesting', 'intéressant', 'reading'),
  _adjective('strange', 'étrange', 'reading place person'),
  _adjective('quiet', 'calme', 'place person'),
  _adjective('dangerous', 'dangereux', 'animal', feminine='dangereuse'),
  _adjective('tired', 'fatigué', 'person animal'),
  _adjective('happy', 'heureux', 'person animal', feminine='heureuse'),
  _adjective('sad', 'triste', 'person'),
  _adjective('ill', 'malade', 'person animal'),
  _adjective('rich', 'riche', 'person'),
  _adjective('intelligent', 'intelligent', 'person animal'),
)
