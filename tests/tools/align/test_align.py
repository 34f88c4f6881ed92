"""The command links words of translations."""

import re

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
    assert re.fullmatch(r'(\d+-\d+ ?)*', line)
    links = [tuple(map(int, link.split('-'))) for link in line.split()]
    assert sorted(j for _, j in links) == [*range(len(target) if source else 0)]
    assert links == sorted(links) and all(i < len(source) for i, _ in links)


def test_given_translations_are_aligned(align, folder, run, tmp_path):
  flags = (
    f'--workdir={run}',
    f'--source={folder}/test.en',
    f'--reference={folder}/test.de',
  )
  status, out, err = align(*flags, f'--output={tmp_path}/links')
  assert status == 0 and out == '', err
  check_links(
    tmp_path / 'links', words_of(folder / 'test.en'), words_of(folder / 'test.de')
  )
  assert not (run / 'eval').exists()
  status, out, err = align(*flags, '--layer=1', '--output=-')  # The run has one layer.
  assert status == 0 and out == (tmp_path / 'links').read_text('utf-8'), err


SOURCE = '--source={folder}/test.en'
GIVEN = f'{SOURCE} --reference={{folder}}/test.de'


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    ('', '--source is missing; pass'),
    (GIVEN, '--output is missing; pass'),
    (f'{SOURCE} --output=y', '--reference is missing; pass'),
    (f'{GIVEN} --output={{folder}}/test.de', 'would overwrite'),
    (f'{GIVEN} --output=x --layer=0', '--layer must be a layer of the decoder'),
  ],
)
def test_user_error_is_a_one_line_message(align, folder, trained, flags, fact):
  message = align.rejects(f'--workdir={trained}', *flags.format(folder=folder).split())
  assert fact.format(folder=folder) in message, message
  assert not list(trained.glob('eval/*.json')) and not (folder / 'x').exists()
