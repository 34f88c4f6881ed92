"""The quickstart's model is right, and sure, about the sentences that pages show and their kind.

The model is trained here, for minutes; QUICKSTART_RUN names the directory of one that is trained.
"""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys

import numpy as np
import pytest

import transformer
from transformer.tools.phrasebook import pairs_of

pytestmark = pytest.mark.long
ROOT = pathlib.Path(__file__).parents[3]
PAGES = (
  'README.md',
  *sorted(f'docs/{page.name}' for page in (ROOT / 'docs').glob('*.md')),
)
APPLES = 'The cats see the big green apples.'
# The sentences of README and the pages.
SHOWN = {
  APPLES: 'Les chats voient les grandes pommes vertes.',
  'The dogs sleep.': 'Les chiens dorment.',
  'The cats sleep.': 'Les chats dorment.',
  'The cats see the dogs.': 'Les chats voient les chiens.',
  'The cats see the big green boats.': 'Les chats voient les grands bateaux verts.',
  'A dog sleeps.': 'Un chien dort.',
  'Two women read a book.': 'Deux femmes lisent un livre.',
  'The old baker does not buy the small red chair.': (
    "Le vieux boulanger n'achète pas la petite chaise rouge."
  ),
  'My young neighbour writes a long Italian letter and sends it to her.': (
    'Mon jeune voisin écrit une longue lettre italienne et la lui envoie.'
  ),
}
# What a newcomer may type, of the same words.
OTHERS = {
  'The cat eats the apple.': 'Le chat mange la pomme.',
  'The dog sleeps.': 'Le chien dort.',
  'The black cat sleeps on the table.': 'Le chat noir dort sur la table.',
  'My cat is black.': 'Mon chat est noir.',
  'The house is big.': 'La maison est grande.',
  'The houses are white.': 'Les maisons sont blanches.',
  'I have a dog.': "J'ai un chien.",
  'She has a red car.': 'Elle a une voiture rouge.',
  'The children play in the garden.': 'Les enfants jouent dans le jardin.',
  'The woman reads a book.': 'La femme lit un livre.',
  'The horse runs.': 'Le cheval court.',
  'The horses do not sleep.': 'Les chevaux ne dorment pas.',
  'The birds sing in the forest.': 'Les oiseaux chantent dans la forêt.',
  'Where is the small yellow bird?': 'Où est le petit oiseau jaune ?',
  'Where are my old books?': 'Où sont mes vieux livres ?',
  'Does the dog eat the cake?': 'Est-ce que le chien mange le gâteau ?',
  'The girl will buy a blue dress.': 'La fille va acheter une robe bleue.',
  'We see the old castle.': 'Nous voyons le vieux château.',
  'The letter arrived yesterday.': 'La lettre est arrivée hier.',
  'The apples fell.': 'Les pommes sont tombées.',
  'The teacher is tired.': 'Le professeur est fatigué.',
  'The tomatoes are too expensive.': 'Les tomates sont trop chères.',
  'The small white rabbit eats a tomato.': 'Le petit lapin blanc mange une tomate.',
  'They opened the windows.': 'Ils ont ouvert les fenêtres.',
  'The cow is in the garden.': 'La vache est dans le jardin.',
  'Marie and Paul sleep.': 'Marie et Paul dorment.',
  'The yellow bird follows the boat.': "L'oiseau jaune suit le bateau.",
  'Two dogs run in the park.': 'Deux chiens courent dans le parc.',
  'The new car is blue.': 'La nouvelle voiture est bleue.',
  'The doctor helped the child.': "Le médecin a aidé l'enfant.",
  'I do not like this cake.': "Je n'aime pas ce gâteau.",
  'The man walks.': "L'homme marche.",
  'The boy wants an orange.': 'Le garçon veut une orange.',
  'The book that Marie reads is interesting.': 'Le livre que Marie lit est intéressant.',
  'Tomorrow, we will visit the church.': "Demain, nous allons visiter l'église.",
  'The mouse sees the cat.': 'La souris voit le chat.',
  'The cat and the dog sleep.': 'Le chat et le chien dorment.',
  'The happy dogs eat the eggs.': 'Les chiens heureux mangent les œufs.',
  'The girls arrived.': 'Les filles sont arrivées.',
  "The cats don't sleep.": 'Les chats ne dorment pas.',
  "They can't see the house.": 'Ils ne peuvent pas voir la maison.',
  'The cat sleeps': 'Le chat dort',
  'the dogs sleep': 'les chiens dorment',
}


@pytest.fixture(scope='module')
def sandbox(tmp_path_factory):
  """Returns a directory like the repository's root after the quickstart."""
  sandbox = tmp_path_factory.mktemp('quickstart')
  for name in ('train.py', 'eval.py', 'transformer', 'configs', 'docs'):
    (sandbox / name).symlink_to(ROOT / name)
  workdir = sandbox / 'runs' / 'quickstart'
  if trained := os.environ.get('QUICKSTART_RUN'):
    shutil.copytree(trained, workdir)
  else:
    run(sandbox, f'python train.py --config=configs/quickstart.py --workdir={workdir}')
  return sandbox


@pytest.fixture(scope='module')
def model(sandbox):
  return transformer.load(sandbox / 'runs' / 'quickstart')


def environment():
  """Returns the environment of a user, who has none of the settings for tests."""
  others = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(('JAX_', 'XLA_')) or name == 'JAX_COMPILATION_CACHE_DIR'
  }
  path = f'{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}'
  return {**others, 'PATH': path, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'}


def run(sandbox, command):
  done = subprocess.run(
    ['bash', '-euo', 'pipefail', '-c', command],
    cwd=sandbox,
    env=environment(),
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  return done.stdout


def transcripts():
  """Yields the page and the lines of each block that shows what commands of the run print."""
  for page in PAGES:
    for block in re.findall(
      r'^```text of a run\n(.*?)^```', (ROOT / page).read_text('utf-8'), re.M | re.S
    ):
      if re.search('^[$>] ', block, re.M):
        yield pytest.param(block, id=page)


def test_it_scores_above_97_on_sentences_of_combinations_that_it_has_not_seen(sandbox):
  run(sandbox, 'python eval.py --workdir=runs/quickstart --results=scores')
  (result,) = (sandbox / 'scores').glob('test.*.json')
  assert json.loads(result.read_text('utf-8'))['bleu'] > 97


@pytest.mark.parametrize('beam_size', [1, 4, 8])
def test_sentences_are_translated_word_for_word(model, beam_size):
  wanted = {**SHOWN, **OTHERS}
  texts = model.translate(list(wanted), beam_size=beam_size)
  assert dict(zip(wanted, texts, strict=True)) == wanted


def test_it_is_sure_of_each_token(model):
  pairs = {**SHOWN, **OTHERS}
  pieces = model.score(list(pairs), list(pairs.values()), tokens=True)
  least = {
    source: min(tokens, key=lambda token: token[1])
    for source, tokens in zip(pairs, pieces, strict=True)
  }
  assert {
    source: piece
    for source, (piece, log_prob) in least.items()
    if np.exp(log_prob) < 0.6
  } == {}


def test_none_of_these_sentences_is_in_the_training_text():
  assert not {*SHOWN, *OTHERS} & {english for english, _ in pairs_of('train')}


def test_each_word_attends_to_the_word_that_it_translates(model):
  found = model.attention(APPLES, SHOWN[APPLES])
  words = ['The', 'cats', 'see', 'the', 'big', 'apples', 'green']
  weights_TS = found.cross[-1].mean(0)[: len(words)]
  assert [found.source[best] for best in weights_TS.argmax(-1)] == [
    f'▁{word}' for word in words
  ]
  assert weights_TS[5].max() > 0.8 and weights_TS[6].max() > 0.8


@pytest.mark.parametrize(
  'page',
  [
    page
    for page in PAGES
    if re.search('^```\n\n```text of a run', (ROOT / page).read_text('utf-8'), re.M)
  ],
)
def test_the_python_of_a_page_prints_what_the_page_shows(sandbox, page):
  run(sandbox, f'python docs/run_pages.py {ROOT / page} --run')


@pytest.mark.parametrize('block', list(transcripts()))
def test_commands_print_what_the_page_shows(sandbox, block):
  if '$ ' in block:
    shown = re.split(r'^\$ (.*)\n', block, flags=re.M)[1:]
    for command, output in zip(shown[::2], shown[1::2], strict=True):
      assert run(sandbox, command) == output
    return
  ours, theirs = pty.openpty()
  with subprocess.Popen(
    [sys.executable, 'eval.py', '--workdir=runs/quickstart', '--source=-'],
    cwd=sandbox,
    env={**environment(), 'TERM': 'dumb'},
    stdin=theirs,
    stdout=theirs,
    stderr=subprocess.DEVNULL,
  ) as process:
    os.close(theirs)
    typed = [f'{line}\n'.encode() for line in re.findall('^> (.*)', block, re.M)] + [
      b'\x04'
    ]
    said = b''
    while typed and select.select([ours], [], [], 100)[0]:
      said += os.read(ours, 4096)
      if said.endswith(b'> '):
        os.write(ours, typed.pop(0))
    assert process.wait(100) == 0
  os.close(ours)
  assert block in said.decode().replace('\r', '')
