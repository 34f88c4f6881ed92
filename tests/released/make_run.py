"""Makes the archive of a small run of this version, for test_released_runs.py.

  python -m tests.released.make_run VERSION    # writes tests/released/VERSION.tar.gz

Run it once for each released version, from a clean checkout of its tag, and never again: the
archive holds that later versions open, score and resume the runs of this one. It contains the run,
its dataset, and `expected.json` with translations, their log-probabilities and BLEU.
"""

import json
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import transformer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LEXICON = {
  'one': 'un',
  'two': 'deux',
  'red': 'rouge',
  'blue': 'bleu',
  'cat': 'chat',
  'dog': 'chien',
  'bird': 'oiseau',
  'sees': 'voit',
  'hears': 'entend',
  'and': 'et',
}
SPLIT_SIZES = {'train': 2000, 'valid': 20, 'test': 30}
SHOWN = 6  # Sentences in expected.json.
SETTINGS = {
  'seed': 1,
  'data.vocabulary_size': 300,
  'data.max_length': 32,
  'model.num_layers': 1,
  'model.model_dim': 32,
  'model.ff_dim': 48,
  'model.num_heads': 4,
  'model.dropout': 0.0,
  'optimizer.peak_learning_rate': 0.005,
  'optimizer.warmup_steps': 100,
  'train.label_smoothing': 0.0,
  'train.tokens_per_batch': 2048,
  'train.steps': 2000,
  'train.eval_every': 1000,
  'train.checkpoint_every': 1000,
  'train.keep': 1,
}


def main():
  """Trains, scores and packs the run."""
  version = sys.argv[1]
  with tempfile.TemporaryDirectory() as scratch:
    folder = Path(scratch) / version
    write_text(folder / 'text')
    settings = [f'--config.{name}={value}' for name, value in SETTINGS.items()]
    start(
      'train.py',
      '--config=configs/text.py',
      '--config.data.source_language=en',
      '--config.data.target_language=fr',
      f'--config.data.dir={folder}/text',
      f'--workdir={folder}/run',
      *settings,
    )
    start(
      'eval.py',
      f'--workdir={folder}/run',
      f'--source={folder}/text/test.en',
      f'--reference={folder}/text/test.fr',
      '--beam_size=1',
    )
    write_expected(folder)
    with tarfile.open(HERE / f'{version}.tar.gz', 'w:gz') as archive:
      archive.add(folder, version)


def write_text(folder: Path):
  """Writes random sentences and their translations word by word."""
  rng = random.Random(1)
  folder.mkdir(parents=True)
  for split, count in SPLIT_SIZES.items():
    lines = [rng.choices([*LEXICON], k=rng.randint(2, 5)) for _ in range(count)]
    for language, words in (('en', lines), ('fr', map(translated, lines))):
      text = ''.join(' '.join(line) + '\n' for line in words)
      (folder / f'{split}.{language}').write_text(text, 'utf-8')


def translated(words: list[str]) -> list[str]:
  """Returns the translation of each word."""
  return [LEXICON[word] for word in words]


def write_expected(folder: Path):
  """Writes what the run translates, and its scores."""
  run = transformer.load(folder / 'run')
  lines = (folder / 'text' / 'test.en').read_text('utf-8').splitlines()[:SHOWN]
  translations = run.translate(lines, beam_size=1)
  expected = {
    'lines': lines,
    'translations': translations,
    'log_probs': [float(score) for score in run.score(lines, translations)],
    'bleu': bleu_of(folder / 'run'),
    'step': SETTINGS['train.steps'],
  }
  (folder / 'expected.json').write_text(json.dumps(expected, indent=1), 'utf-8')


def bleu_of(run: Path) -> float:
  """Removes the only result of `eval.py` in a run, and returns its BLEU."""
  (result,) = (run / 'eval').glob('*.json')
  bleu = json.loads(result.read_text('utf-8'))['bleu']
  result.unlink()  # A later version writes its own.
  return bleu


def start(command: str, *flags: str):
  """Runs a command of this checkout."""
  subprocess.run([sys.executable, ROOT / command, *flags], cwd=ROOT, check=True)


if __name__ == '__main__':
  main()
