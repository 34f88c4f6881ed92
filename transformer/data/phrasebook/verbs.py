"""The verbs of the phrasebook, their auxiliaries, and the kinds of their direct objects.

An action has the English progressive (is eating), a stative verb the simple present (knows).
The French present translates both.
"""

from transformer.data.phrasebook.lexicon import make_verb

_OBJECTS = 'clothing container furniture machine'

TRANSITIVES = (
  make_verb('eat eats eating ate', 'manger', kinds='food meal'),
  make_verb('prepare prepares preparing prepared', 'préparer', kinds='meal'),
  make_verb('drink drinks drinking drank', 'boire bois boit buvons buvez boivent bu',
            kinds='drink'),
  make_verb('buy buys buying bought', 'acheter achète achète achetons achetez achètent acheté',
            kinds=f'{_OBJECTS} food mass paper'),
  make_verb('sell sells selling sold', 'vendre vends vend vendons vendez vendent vendu',
            kinds='clothing furniture machine food meal'),
  make_verb('find finds finding found', 'trouver', stative=True,
            kinds='animal clothing container machine'),
  make_verb('look looks looking looked', 'chercher', particle='for',
            kinds='person animal clothing container paper'),
  make_verb('wait waits waiting waited',
            'attendre attends attend attendons attendez attendent attendu', particle='for',
            kinds='person'),
  make_verb('listen listens listening listened', 'écouter', particle='to', kinds='person'),
  make_verb('help helps helping helped', 'aider', kinds='person'),
  make_verb('write writes writing wrote', 'écrire écris écrit écrivons écrivez écrivent écrit',
            kinds='text'),
  make_verb('open opens opening opened', 'ouvrir ouvre ouvre ouvrons ouvrez ouvrent ouvert',
            kinds='opening container'),
  make_verb('close closes closing closed', 'fermer', kinds='opening container'),
  make_verb('wash washes washing washed', 'laver', kinds='clothing opening animal'),
  make_verb('take takes taking took', 'prendre prends prend prenons prenez prennent pris',
            kinds='container clothing paper food'),
  make_verb('choose chooses choosing chose',
            'choisir choisis choisit choisissons choisissez choisissent choisi',
            kinds='clothing furniture reading food'),
  make_verb('visit visits visiting visited', 'visiter', kinds='building'),
)

STATIVES = (
  make_verb('see sees seeing saw', 'voir vois voit voyons voyez voient vu',
            kinds=f'person animal place {_OBJECTS}', stative=True),
  make_verb('know knows knowing knew',
            'connaître connais connaît connaissons connaissez connaissent connu',
            kinds='person place', stative=True),
)

LIKE = make_verb('like likes liking liked', 'aimer', stative=True,
                 kinds='food mass animal clothing reading place plant machine')
HAVE = make_verb('have has having had', 'avoir ai a avons avez ont eu', stative=True,
                 kinds=f'animal relative {_OBJECTS}')

GIVERS = (
  make_verb('give gives giving gave', 'donner', kinds='clothing food paper container animal'),
  make_verb('show shows showing showed', 'montrer',
            kinds='clothing paper container animal machine'),
  make_verb('send sends sending sent', 'envoyer envoie envoie envoyons envoyez envoient envoyé',
            kinds='clothing paper container'),
)

DWELLERS = (
  make_verb('work works working worked', 'travailler'),
  make_verb('sleep sleeps sleeping slept', 'dormir dors dort dormons dormez dorment dormi'),
  make_verb('sing sings singing sang', 'chanter'),
)

GO = make_verb('go goes going went', 'aller vais va allons allez vont allé', etre=True)
ARRIVE = make_verb('arrive arrives arriving arrived', 'arriver', etre=True)
RETURN = make_verb('come comes coming came',
                   'revenir reviens revient revenons revenez reviennent revenu', particle='back',
                   etre=True)

WANT = make_verb('want wants wanting wanted', 'vouloir veux veut voulons voulez veulent voulu',
                 stative=True)
CAN = make_verb('can can - could', 'pouvoir peux peut pouvons pouvez peuvent pu')
MUST = make_verb('must must - had', 'devoir dois doit devons devez doivent dû')

THINKERS = (
  make_verb('think thinks thinking thought', 'penser', stative=True),
  make_verb('say says saying said', 'dire dis dit disons dites disent dit', stative=True),
  make_verb('know knows knowing knew', 'savoir sais sait savons savez savent su', stative=True),
)

ETRE = ('suis', 'est', 'sommes', 'êtes', 'sont')
ETAIT = ('étais', 'était', 'étions', 'étiez', 'étaient')

# Two actions on the same thing, and its kinds: she buys the apple and eats it.
CHAINS = (
  ('buy', 'eat', 'food meal'),
  ('prepare', 'eat', 'meal'),
  ('take', 'wash', 'clothing'),
  ('find', 'wash', 'clothing animal'),
  ('choose', 'buy', 'clothing furniture reading food'),
  ('take', 'close', 'container'),
  ('buy', 'drink', 'drink'),
  ('open', 'close', 'opening container'),
  ('wash', 'sell', 'clothing'),
  ('find', 'open', 'container'),
)
