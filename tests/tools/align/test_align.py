"""The command links words of own and of given translations, and scores links of given ones."""

import json
import re
import shutil

import jax
import pytest

from transformer import files
from transformer.runs import run_directory
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
    links = [tuple(map(int, re.fullmatch(r'(\d+)-(\d+)', link).groups())) for link in line.split()]
    assert sorted(j for _, j in links) == [*range(len(target) if source else 0)]
    assert links == sorted(links) and all(i < len(source) for i, _ in links)


@pytest.mark.long
def test_the_runs_own_translations_are_those_of_eval_and_are_aligned(
    align, evaluate, folder, run, tmp_path):
  source = tmp_path / 'in'
  source.write_text((folder / 'test.en').read_text('utf-8') + '\n', encoding='utf-8')
  flags = f'--workdir={run}', f'--source={source}', '--beam_size=1'
  _, wanted, _ = evaluate(*flags)
  status, out, err = align(*flags, f'--translations={tmp_path}/out', f'--output={tmp_path}/links')
  assert status == 0 and out == '' and (tmp_path / 'out').read_text('utf-8') == wanted, err
  check_links(tmp_path / 'links', words_of(source), words_of(tmp_path / 'out'))
  status, out, err = align(*flags[:2], f'--reference={tmp_path}/out', '--output=-')
  assert status == 0 and out == (tmp_path / 'links').read_text('utf-8'), err


def test_given_translations_are_aligned_and_scored(align, evaluate, folder, run, tmp_path):
  flags = f'--workdir={run}', f'--source={folder}/test.en', f'--reference={folder}/test.de'
  shutil.copytree(run, tmp_path / 'twin')
  found = []
  for more in ([], ['--layer=1'], ['--shift'], [f'--ensemble={tmp_path}/twin']):
    status, out, err = align(*flags, *more, f'--output={tmp_path}/links')
    assert status == 0 and out == '', err
    check_links(tmp_path / 'links', words_of(folder / 'test.en'), words_of(folder / 'test.de'))
    found.append((tmp_path / 'links').read_text('utf-8'))
  # The run has one layer, and a run twice is that run.
  assert found[0] == found[1] == found[3] != found[2]
  assert not (run / 'eval').exists()

  # Gold that is as found, but for one sure link, which is right, that now is possible.
  gold = found[0].replace('-', '?', 1)
  (tmp_path / 'gold').write_text(gold, encoding='utf-8')
  status, out, err = align(*flags, f'--gold={tmp_path}/gold')
  assert status == 0, err
  links = len(gold.split())
  assert re.search(r'^test\.en\.\w{8}\.alignment: 2 pairs, step 7$', out, re.MULTILINE)
  assert f'{links} found, {links - 1} sure, {links} possible links' in out
  path, = (run / 'eval').glob('*.json')
  result = json.loads(path.read_text('utf-8'))
  assert [(metric['name'], metric['score']) for metric in result['metrics']] == [
      ('AER', 0), ('precision', 100), ('recall', 100)]
  assert result['steps'] == [7] and result['workdir'] == str(run)
  rows = [json.loads(line) for line in
          path.with_suffix('.sentences.jsonl').read_text('utf-8').splitlines()]
  assert [row['alignment'] for row in rows] == found[0].splitlines()

  status, out, err = align(*flags, f'--gold={tmp_path}/gold', '--shift', '--layer=1', '--output=-')
  assert status == 0 and 'also in' in err and out == found[2], err
  other, = set((run / 'eval').glob('*.json')) - {path}
  assert other.name.endswith('.alignment.step7.layer1.shift1.json')
  assert json.loads(other.read_text('utf-8'))['metrics'][0]['score'] > 0

  message = align.refuses(f'--workdir={tmp_path}/twin', *flags[1:], f'--gold={tmp_path}/gold',
                          f'--results={path.parent}')
  assert f'{path} is the result of another run, {run}' in message
  # They are no results of translations.
  status, _, err = evaluate(*flags, '--beam_size=1')
  assert status == 0, err


def test_a_run_that_trained_a_head_towards_links_is_aligned_by_that_head(align, folder, run):
  settings = run_directory.read_config(run)
  flags = (f'--workdir={run}', f'--source={folder}/test.en', f'--reference={folder}/test.de',
           '--output=-')
  plain = align(*flags)
  settings['data']['alignments'], settings['train']['alignment_layer'] = 'links', 1
  files.write_sealed(run / 'config.json', settings)
  by_head, by_layer = align(*flags), align(*flags, '--layer=1')
  assert by_head[0] == 0 and by_head[1] != plain[1] == by_layer[1]


GIVEN = ['--source={folder}/test.en', '--reference={folder}/test.de']


@pytest.mark.parametrize(('flags', 'facts'), [
    ([], ['--source=FILE is needed']),
    (GIVEN, ['--output=FILE is needed, where links go, or --gold=FILE']),
    ([*GIVEN, '--output='], ['--output= names nothing']),
    ([*GIVEN, '--gold='], ['--gold= names nothing']),
    ([*GIVEN, '--translations=x', '--output=y'], ['--reference=FILE is needed', 'and not both']),
    ([GIVEN[0], '--output=y'], ['--translations=FILE, where the run\'s own go']),
    ([*GIVEN, '--output={folder}'], ['--output must name a file', 'is a directory']),
    ([GIVEN[0], '--translations={folder}/x', '--output={folder}/../{folder.name}/x'],
     ['--output and --translations must name two files; both name']),
    ([*GIVEN, '--output={folder}/test.de'], ['--output', 'test.de would replace what is read']),
    ([GIVEN[0], '--translations={folder}/test.en', '--output=x'], ['would replace what is read']),
    ([*GIVEN, '--gold={folder}/empty', '--output={folder}/empty'],
     ['empty would replace what is read']),
    ([*GIVEN, '--output=x', '--layer=2'], ['a layer of the decoder, from 1', 'to 1; got 2']),
    ([*GIVEN, '--output=x', '--layer=0'], ['a layer of the decoder, from 1', 'to 1; got 0']),
    ([*GIVEN, '--output=x', '--beam_size=2'], ['--beam_size and --alpha are of a search']),
    ([*GIVEN, '--output=x', '--results=y'], ['--results=y is for error rates; add --gold=FILE']),
    ([GIVEN[0], '--gold=x', '--translations=y'], ['--gold is for translations that are given']),
    ([*GIVEN, '--gold=-'], ['--gold must name a file; standard input']),
    ([*GIVEN, '--output=az://b'], ['--output must be a path on this machine']),
    ([*GIVEN, '--gold=/nowhere/x'], ['/nowhere/x', 'there is no folder /nowhere']),
    ([*GIVEN, '--gold={folder}/empty'], ['there are 2 pairs', 'empty has 0 lines']),
    ([*GIVEN, '--gold={folder}/test.de'], ['test.de:1: a link must be I-J if it is sure',
                                           "got 'der'"]),
])
def test_a_mistake_is_one_line(align, folder, trained, flags, facts):
  flags = [flag.format(folder=folder) for flag in flags]
  message = align.refuses(f'--workdir={trained}', *flags)
  for fact in facts:
    assert fact in message, message
  assert not list(trained.glob('eval/*.json')) and not (folder / 'x').exists()
