"""Sentence pairs for tests: random words, and their translations in the same order."""

import random

# English and German words, for text that need not be learned.
MIXED_WORDS = [
  'man',
  'dog',
  'red',
  'shirt',
  'mann',
  'hund',
  'rot',
  'hemd',
  'läuft',
  'runs',
  'über',
]
WORDS = {
  'the': 'le',
  'man': 'homme',
  'woman': 'femme',
  'child': 'enfant',
  'old': 'vieux',
  'young': 'jeune',
  'happy': 'heureux',
  'strange': 'étrange',
  'teacher': 'professeur',
  'doctor': 'médecin',
  'sees': 'voit',
  'opens': 'ouvre',
  'closes': 'ferme',
  'writes': 'écrit',
  'letter': 'lettre',
  'story': 'histoire',
  'window': 'fenêtre',
  'garden': 'jardin',
  'castle': 'château',
  'church': 'église',
  'hospital': 'hôpital',
  'market': 'marché',
  'yellow': 'jaune',
  'green': 'vert',
  'small': 'petit',
  'beautiful': 'beau',
  'expensive': 'cher',
  'today': "aujourd'hui",
  'tomorrow': 'demain',
  'never': 'jamais',
  'always': 'toujours',
  'behind': 'derrière',
  'between': 'entre',
  'bottle': 'bouteille',
  'umbrella': 'parapluie',
}


def english_and_french(pairs: int, seed: int = 0) -> tuple[list[str], list[str]]:
  """Returns sentences of 3 to 12 words, and their translations."""
  rng = random.Random(seed)
  sentences = [rng.choices(list(WORDS), k=rng.randint(3, 12)) for _ in range(pairs)]
  english = [' '.join(words).capitalize() + '.' for words in sentences]
  french = [' '.join(map(WORDS.get, words)).capitalize() + '.' for words in sentences]
  return english, french
