"""The words of the phrasebook: nouns, adjectives and verbs, with their forms in both languages.

Nouns have `kinds`; adjectives and verbs list the kinds that they combine with. So a door is
opened and soup is hot, never the reverse. No English form has two French translations, so
French is a function of English. There is no aspirated h: every h elides.
"""

import dataclasses

VOWELS = 'aeiouyhàâéèêîôœ'


def elides(word: str) -> bool:
  """Returns whether `word` begins with a vowel or a mute h, so that it follows l', d' or cet."""
  return word[0].lower() in VOWELS


def plural_of(word: str, ending: str = 's') -> str:
  """Returns the French plural of a word; words that end in s or x do not change."""
  return word if word[-1] in 'sx' else word + ending


@dataclasses.dataclass(frozen=True)
class Noun:
  """A noun: singular and plural in both languages, French gender (`m`, `f`), and kinds."""

  en: str
  en_plural: str
  fr: str
  fr_plural: str
  gender: str
  kinds: frozenset[str]

  @property
  def mass(self) -> bool:
    """Returns whether the noun is uncountable: some bread, du pain."""
    return 'mass' in self.kinds


@dataclasses.dataclass(frozen=True)
class Adjective:
  """An adjective: its French forms, the kinds of nouns that it suits, and its place.

  `liaison` is the form before a masculine noun with a vowel. `before` puts the adjective
  before the French noun. `last` marks colours and origins, which may follow another
  adjective in English (a beautiful red dress).
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
    """Returns the French form that agrees with a gender and a number."""
    if gender == 'f':
      return plural_of(self.feminine) if plural else self.feminine
    return self.masculine_plural if plural else self.masculine


@dataclasses.dataclass(frozen=True)
class Verb:
  """A verb: English and French forms, and the kinds of its objects.

  `present` is the French present for je, il, nous, vous and ils. `stative` verbs have the
  simple present in English, and others the progressive. `etre` verbs form the passé composé
  with être and agree with their subject.
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


def _adjective(en: str, french: str, kinds: str, *, before: bool = False,
               last: bool = False) -> Adjective:
  """Builds an adjective.

  `french` lists its masculine, feminine, masculine plural and liaison; regular forms at the
  end of the list may be left out.
  """
  masculine, *irregular = french.split()
  regular = (masculine + 'e' * (not masculine.endswith('e')), plural_of(masculine), masculine)
  return Adjective(en, masculine, *irregular, *regular[len(irregular):], frozenset(kinds.split()),
                   before, last)


def make_verb(english: str, french: str, *, kinds: str = '', particle: str = '',
              stative: bool = False, etre: bool = False) -> Verb:
  """Builds a verb.

  `english` lists the base form, the third person, the -ing form and the past. `french` lists
  the infinitive, the present for je, il, nous, vous and ils, and the participle; a regular
  -er verb needs only its infinitive.
  """
  base, third, ing, past = (f'{form} {particle}'.strip() for form in english.split())
  infinitive, *forms = french.split()
  stem = infinitive[:-2]
  *present, participle = forms or (
    f'{stem}e', f'{stem}e', f'{stem}{"e" * stem.endswith("g")}ons', f'{stem}ez', f'{stem}ent',
    f'{stem}é')
  return Verb(base, third, ing, past, infinitive, tuple(present), participle,
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
  _noun('nurse', 'infirmière', 'f', 'person worker'),
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
  _adjective('beautiful', 'beau belle beaux bel', 'animal clothing furniture machine place plant',
             before=True),
  _adjective('pretty', 'joli', 'clothing furniture place plant', before=True),
  _adjective('old', 'vieux vieille vieux vieil',
             f'{_DYED} adult worker relative animal place reading', before=True),
  _adjective('new', 'nouveau nouvelle nouveaux nouvel', f'{_OBJECTS} worker building reading',
             before=True),
  _adjective('young', 'jeune', 'person', before=True),
  _adjective('good', 'bon bonne', 'food mass worker reading', before=True),
  _adjective('bad', 'mauvais', 'food mass reading', before=True),
  _adjective('long', 'long longue', 'reading', before=True),
  _adjective('white', 'blanc blanche', f'{_DYED} animal', last=True),
  _adjective('black', 'noir', f'{_DYED} animal', last=True),
  _adjective('grey', 'gris', f'{_DYED} animal', last=True),
  _adjective('red', 'rouge', _DYED, last=True),
  _adjective('green', 'vert', _DYED, last=True),
  _adjective('blue', 'bleu', _DYED, last=True),
  _adjective('yellow', 'jaune', _DYED, last=True),
  _adjective('French', 'français', 'worker reading', last=True),
  _adjective('English', 'anglais', 'worker reading', last=True),
  _adjective('Italian', 'italien italienne', 'worker reading', last=True),
  _adjective('expensive', 'cher chère', f'{_GOODS} mass building'),
  _adjective('dirty', 'sale', f'{_DYED} animal'),
  _adjective('clean', 'propre', _DYED),
  _adjective('empty', 'vide', 'container building'),
  _adjective('fresh', 'frais fraîche', 'food'),
  _adjective('hot', 'chaud', 'mass'),
  _adjective('cold', 'froid', 'mass'),
  _adjective('interesting', 'intéressant', 'reading'),
  _adjective('strange', 'étrange', 'reading place person'),
  _adjective('quiet', 'calme', 'place person'),
  _adjective('dangerous', 'dangereux dangereuse', 'animal'),
  _adjective('tired', 'fatigué', 'person animal'),
  _adjective('happy', 'heureux heureuse', 'person animal'),
  _adjective('sad', 'triste', 'person'),
  _adjective('ill', 'malade', 'person animal'),
  _adjective('rich', 'riche', 'person'),
  _adjective('intelligent', 'intelligent', 'person animal'),
)
