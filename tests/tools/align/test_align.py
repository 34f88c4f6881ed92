"""The command links words of translations, and scores the links."""

import json
import re
import shutil

import jax
import pytest

from transformer.runs.loading import load_run, save_run


@pytest.fixture(scope='module')
def align(start_command):
  yield from start_command('transformer.tools.align.__main__')


@pytest.fixture
def run(trained, tmp_path):
  """A run at step 7 with wider parameters than the trained run, so that its words differ."""
  run = load_run(trained)
  params = jax.tree.map(lambda leaf: 4.0 * leaf, run.params)
  save_run(tmp_path / 'run', run.config, run.vocabulary, params, [7])
  return tmp_path / 'run'


def words_of(path):
  return [line.split() for line in path.read_bytes().removesuffix(b'\n').split(b'\n')]


def check_links(path, sources, targets):
  """Each target word has one link to a word of its source."""
  lines = path.read_text('utf-8').splitlines()
  assert len(lines) == len(sources)
  for line, source, target in zip(lines, sources, targets, strict=True):
    links = [
      tuple(map(int, re.fullmatch(r'(\d+)-(\d+)', link).groups()))
      for link in line.split()
    ]
    assert sorted(j for _, j in links) == [*range(len(target) if source else 0)]
    assert links == sorted(links) and all(i < len(source) for i, _ in links)


def test_given_translations_are_aligned_and_scored(align, folder, run, tmp_path):
  flags = (
    f'--workdir={run}',
    f'--source={folder}/test.en',
    f'--reference={folder}/test.de',
  )
  shutil.copytree(run, tmp_path / 'twin')
  outputs = []
  for more in ([], [f'--ensemble={tmp_path}/twin']):
    status, out, err = align(*flags, *more, f'--output={tmp_path}/links')
    assert status == 0 and out == '', err
    check_links(
      tmp_path / 'links', words_of(folder / 'test.en'), words_of(folder / 'test.de')
    )
    outputs.append((tmp_path / 'links').read_text('utf-8'))
  assert outputs[0] == outputs[1]  # A run twice is that run.
  assert not (run / 'eval').exists()

  # Gold that is as linked, but for one sure link, which is right, that now is possible.
  gold = outputs[0].replace('-', '?', 1)
  (tmp_path / 'gold').write_text(gold, encoding='utf-8')
  status, out, err = align(*flags, f'--gold={tmp_path}/gold')
  assert status == 0, err
  links = len(gold.split())
  assert re.search(r'^test\.en\.\w{8}: 2 sentences, step 7$', out, re.MULTILINE)
  assert f'{links} found, {links - 1} sure, {links} possible links' in out
  (path,) = (run / 'eval').glob('*.json')
  result = json.loads(path.read_text('utf-8'))
  assert [(metric['name'], metric['score']) for metric in result['metrics']] == [
    ('AER', 0),
    ('precision', 100),
    ('recall', 100),
  ]
  assert result['steps'] == [7] and result['workdir'] == str(run)
  rows = [
    json.loads(line)
    for line in path.with_suffix('.sentences.jsonl').read_text('utf-8').splitlines()
  ]
  assert [row['alignment'] for row in rows] == outputs[0].splitlines()

  status, out, err = align(*flags, f'--gold={tmp_path}/gold', '--layer=1', '--output=-')
  # The run has one layer.
  assert status == 0 and 'also in' in err and out == outputs[1], err
  (other,) = set((run / 'eval').glob('*.json')) - {path}
  assert other.name.endswith('.alignment.step7.layer1.json')
  assert json.loads(other.read_text('utf-8'))['metrics'][0]['score'] == 0


SOURCE = '--source={folder}/test.en'
GIVEN = f'{SOURCE} --reference={{folder}}/test.de'


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    ('', '--source=FILE is needed'),
    (GIVEN, '--output=FILE is needed, where links go, or --gold'),
    (f'{SOURCE} --output=y', '--reference=FILE is needed'),
    (
      f'{GIVEN} --gold={{folder}}/empty --output={{folder}}/empty',
      'would replace what is read',
    ),
    (f'{GIVEN} --output=x --layer=0', '--layer must be a layer of the decoder'),
    (
      f'{GIVEN} --output=x --results=y',
      '--results is for error rates; add --gold=FILE',
    ),
    (f'{GIVEN} --gold=-', '--gold must name a file; standard input'),
    (f'{GIVEN} --gold={{folder}}/empty', 'there are 2, and {folder}/empty has 0 lines'),
    (
      f'{GIVEN} --gold={{folder}}/test.de',
      'test.de:1: a link must be I-J if it is sure',
    ),
  ],
)
def test_a_mistake_is_one_line(align, folder, trained, flags, fact):
  message = align.refuses(f'--workdir={trained}', *flags.format(folder=folder).split())
  assert fact.format(folder=folder) in message, message
  assert not list(trained.glob('eval/*.json')) and not (folder / 'x').exists()
