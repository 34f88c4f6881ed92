"""The words of the phrasebook, with their forms in both languages.

Each noun has one kind; adjectives and verbs list the kinds that they combine with. So a door is
opened and an apple is eaten, never the reverse; a dog eats, and a table does not. An entry lists
the forms that the rules below do not produce.
"""

import re
from collections import namedtuple

_GOODS = 'clothing container furniture machine'
_ALL = f'person animal food reading opening building place {_GOODS}'

# English, French and gender; after a slash, an irregular English plural.
_NOUNS = {
  'person': 'man/men homme m, woman/women femme f, child/children enfant m, girl fille f, '
  'boy garçon m, teacher professeur m, doctor médecin m, baker boulanger m, '
  'nurse infirmière f, actress actrice f, neighbour voisin m, friend ami m, '
  'brother frère m, sister sœur f, father père m, mother mère f',
  'animal': 'cat chat m, dog chien m, horse cheval m, bird oiseau m, cow vache f, '
  'rabbit lapin m, mouse/mice souris f',
  'food': 'apple pomme f, orange orange f, egg œuf m, cake gâteau m, tomato tomate f',
  'clothing': 'hat chapeau m, coat manteau m, dress robe f, shirt chemise f, '
  'scarf/scarves écharpe f',
  'reading': 'book livre m, letter lettre f, poem poème m, story histoire f, newspaper journal m',
  'container': 'bag sac m, box boîte f, bottle bouteille f, suitcase valise f',
  'furniture': 'table table f, chair chaise f, bed lit m, wardrobe armoire f',
  'machine': 'car voiture f, bicycle vélo m, boat bateau m, umbrella parapluie m',
  'opening': 'door porte f, window fenêtre f',
  'building': 'house maison f, church église f, school école f, hotel hôtel m, '
  'hospital hôpital m, restaurant restaurant m, castle château m',
  'place': 'garden jardin m, park parc m, village village m, town ville f, forest forêt f',
}

# English and French: the masculine, an irregular feminine, and the form before a masculine vowel.
_BEFORE = {
  _ALL: 'big grand, old vieux/vieille/vieil, beautiful beau/belle/bel',
  f'person animal food opening building place {_GOODS}': 'small petit',
  f'food reading building {_GOODS}': 'new nouveau/nouvelle/nouvel, good bon/bonne',
  'person': 'young jeune',
  'reading': 'long long/longue',
}
_AFTER = {
  f'food opening animal {_GOODS}': 'white blanc/blanche, black noir, red rouge, green vert, '
  'yellow jaune, blue bleu',
  'person reading': 'French français, English anglais, Italian italien/italienne',
  f'food reading building {_GOODS}': 'expensive cher/chère',
  f'opening animal {_GOODS}': 'dirty sale, clean propre',
  'container building': 'empty vide',
  'food': 'fresh frais/fraîche',
  'reading': 'interesting intéressant',
  'reading person place building': 'strange étrange',
  'person animal': 'tired fatigué, happy heureux/heureuse, ill malade, intelligent intelligent',
  'animal': 'dangerous dangereux/dangereuse',
  'person': 'sad triste, rich riche',
}

# English, its past, and the French infinitive; for irregular verbs the present for je, il, nous,
# vous and ils, and the participle; then the kinds of objects, `-` for none; after a slash, the
# kinds of subjects in addition to people.
_VERBS = f"""
  eat ate manger: food - / animal
  buy bought acheter achète achète achetons achetez achètent acheté: food animal reading {_GOODS}
  sell sold vendre vends vend vendons vendez vendent vendu: food animal reading {_GOODS}
  see saw voir vois voit voyons voyez voient vu: {_ALL} / animal
  find found trouver: {_ALL} / animal
  wash washed laver: food opening animal {_GOODS}
  open opened ouvrir ouvre ouvre ouvrons ouvrez ouvrent ouvert: opening container building
  close closed fermer: opening container building
  choose chose choisir choisis choisit choisissons choisissez choisissent choisi: food {_GOODS}
  take took prendre prends prend prenons prenez prennent pris: food reading {_GOODS} / animal
  study studied étudier: reading
  read read lire lis lit lisons lisez lisent lu: reading -
  write wrote écrire écris écrit écrivons écrivez écrivent écrit: reading -
  help helped aider: person animal
  visit visited visiter: building place
  like liked aimer: {_ALL} / animal
  love loved adorer: {_ALL} / animal
  want wanted vouloir veux veut voulons voulez veulent voulu: food animal reading {_GOODS} / animal
  have had avoir ai a avons avez ont eu: food animal reading building {_GOODS}
  follow followed suivre suis suit suivons suivez suivent suivi: person animal machine / animal
  show showed montrer: animal food reading {_GOODS}
  give gave donner: animal food reading {_GOODS}
  send sent envoyer envoie envoie envoyons envoyez envoient envoyé: food reading {_GOODS}
  sleep slept dormir dors dort dormons dormez dorment dormi: - / animal
  run ran courir cours court courons courez courent couru: - / animal
  walk walked marcher: - / animal
  play played jouer: - / animal
  swim swam nager: - / animal
  sing sang chanter: - / animal
  work worked travailler: - / animal
  disappear disappeared disparaître disparais disparaît disparaissons disparaissez disparaissent
    disparu: - / animal food opening building {_GOODS} reading
  fall fell tomber: - / animal food opening reading {_GOODS}
  arrive arrived arriver: - / animal machine
  stay stayed rester: - / animal food reading {_GOODS}
  come came venir viens vient venons venez viennent venu: - / animal"""
GIVING = ('show', 'give', 'send')
# Verbs with être in the past; their participle agrees with the subject.
_WITH_ETRE = ('fall', 'arrive', 'stay', 'come')


# `gender` is m or f.
Noun = namedtuple('Noun', 'en en_plural fr fr_plural gender kind')
# `liaison` is the form before a masculine noun with an initial vowel, as in un vieil ami.
Adjective = namedtuple('Adjective', 'en masculine feminine liaison before kinds')
# `present` is for je, il, nous, vous and ils; `kinds` are the kinds of objects, and `alone` is
# whether the verb may have no object.
Verb = namedtuple(
  'Verb', 'en third past infinitive present participle etre alone kinds subjects'
)


def plural_of(word: str) -> str:
  """Returns the French plural of a noun, adjective or participle."""
  if word.endswith(('s', 'x')):
    return word
  if word.endswith('al'):
    return f'{word[:-2]}aux'
  return f'{word}x' if word.endswith('eau') else f'{word}s'


def _with_s(word: str) -> str:
  """Returns the English plural of a noun, or the third person of a verb."""
  if word.endswith('y') and word[-2] not in 'aeiou':
    return f'{word[:-1]}ies'
  return f'{word}es' if word.endswith(('s', 'x', 'ch', 'sh', 'to')) else f'{word}s'


def _nouns():
  """Yields the nouns of `_NOUNS`."""
  for kind, entries in _NOUNS.items():
    for entry in entries.split(', '):
      english, french, gender = entry.split()
      singular, _, plural = english.partition('/')
      yield Noun(
        singular, plural or _with_s(singular), french, plural_of(french), gender, kind
      )


def _adjectives(groups, precedes):
  """Yields the adjectives of a table; `precedes` is whether they precede a French noun."""
  for kinds, entries in groups.items():
    for entry in entries.split(', '):
      english, french = entry.split()
      masculine, *others = french.split('/')
      regular = [masculine if masculine.endswith('e') else f'{masculine}e', masculine]
      feminine, liaison = [*others, *regular[len(others) :]]
      yield Adjective(
        english, masculine, feminine, liaison, precedes, frozenset(kinds.split())
      )


def _regular_forms(stem: str) -> list[str]:
  """Returns the present and the participle of a French verb ending in -er."""
  nous = 'eons' if stem.endswith('g') else 'ons'
  return [f'{stem}{ending}' for ending in ('e', 'e', nous, 'ez', 'ent', 'é')]


def _verbs():
  """Yields the verbs of `_VERBS`."""
  for entry in re.split(r'\n  (?! )', _VERBS)[1:]:
    forms, _, kinds = entry.partition(':')
    objects, _, subjects = kinds.partition('/')
    english, past, infinitive, *irregular = forms.split()
    if not irregular:
      irregular = _regular_forms(infinitive[:-2])
    *present, participle = irregular
    third = 'has' if english == 'have' else _with_s(english)
    yield Verb(
      english,
      third,
      past,
      infinitive,
      tuple(present),
      participle,
      english in _WITH_ETRE,
      '-' in objects,
      frozenset(objects.split()) - {'-'},
      frozenset(subjects.split()),
    )


NOUNS = tuple(_nouns())
VERBS = tuple(_verbs())
ADJECTIVES = (*_adjectives(_BEFORE, True), *_adjectives(_AFTER, False))
