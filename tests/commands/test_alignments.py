"""`eval.py` links words of its own and of given translations, and scores links of given ones."""

import json
import re
import shutil

import jax
import pytest

from transformer.runs.loading import load_run, save_run


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
    links = [tuple(map(int, re.fullmatch(r'(\d+)-(\d+)', each).groups())) for each in line.split()]
    assert sorted(j for _, j in links) == [*range(len(target) if source else 0)]
    assert links == sorted(links) and all(i < len(source) for i, _ in links)


@pytest.mark.long
def test_translations_are_aligned_with_their_sources(evaluate, folder, run, tmp_path):
  source = tmp_path / 'in'
  source.write_text((folder / 'test.en').read_text('utf-8') + '\n', encoding='utf-8')
  flags = f'--workdir={run}', f'--source={source}', '--beam_size=1'
  _, plain, _ = evaluate(*flags)
  status, out, err = evaluate(*flags, f'--alignments={tmp_path}/new/links')
  assert status == 0 and out == plain, err
  (tmp_path / 'out').write_text(out, encoding='utf-8')
  check_links(tmp_path / 'new/links', words_of(source), words_of(tmp_path / 'out'))
  status, out, err = evaluate(f'--workdir={run}', '--split=test', '--beam_size=1',
                              f'--alignments={tmp_path}/split', f'--output={tmp_path}/out')
  assert status == 0 and 'BLEU' in out, err
  check_links(tmp_path / 'split', words_of(folder / 'test.en'), words_of(tmp_path / 'out'))


def test_given_translations_are_aligned_and_scored(evaluate, folder, run, tmp_path):
  flags = (f'--workdir={run}', f'--source={folder}/test.en', f'--reference={folder}/test.de',
           '--score')
  _, likelihoods, _ = evaluate(*flags)
  shutil.copytree(run, tmp_path / 'twin')
  found = []
  for more in ([], ['--alignment_layer=1'], ['--alignment_shift'],
               [f'--ensemble={tmp_path}/twin']):
    status, out, err = evaluate(*flags, *more, f'--alignments={tmp_path}/links')
    assert status == 0 and out == likelihoods, err
    check_links(tmp_path / 'links', words_of(folder / 'test.en'), words_of(folder / 'test.de'))
    found.append((tmp_path / 'links').read_text('utf-8'))
  # The run has one layer, and a run twice is that run.
  assert found[0] == found[1] == found[3] != found[2]
  assert not (run / 'eval').exists()

  # Gold that is as found, but for one sure link, which is right, that now is possible.
  gold = found[0].replace('-', '?', 1)
  (tmp_path / 'gold').write_text(gold, encoding='utf-8')
  status, out, err = evaluate(*flags, f'--alignment_gold={tmp_path}/gold')
  assert status == 0 and out == likelihoods, err
  links = len(gold.split())
  assert re.search(r'^test\.en\.\w{8}\.alignment: 2 pairs, step 7$', err, re.MULTILINE)
  assert f'{links} found, {links - 1} sure, {links} possible links' in err
  path, = (run / 'eval').glob('*.json')
  result = json.loads(path.read_text('utf-8'))
  assert [(each['name'], each['score']) for each in result['metrics']] == [
      ('AER', 0), ('precision', 100), ('recall', 100)]
  assert result['steps'] == [7] and result['workdir'] == str(run)
  rows = [json.loads(line) for line in
          path.with_suffix('.sentences.jsonl').read_text('utf-8').splitlines()]
  assert [each['alignment'] for each in rows] == found[0].splitlines()

  status, out, err = evaluate(*flags, f'--alignment_gold={tmp_path}/gold', '--alignment_shift',
                              '--alignment_layer=1', f'--output={tmp_path}/likelihoods')
  assert status == 0 and 'also in' in out, err
  other, = set((run / 'eval').glob('*.json')) - {path}
  assert other.name.endswith('.alignment.step7.layer1.shift1.json')
  assert json.loads(other.read_text('utf-8'))['metrics'][0]['score'] > 0

  shutil.copytree(run, tmp_path / 'another')
  gold = f'--alignment_gold={tmp_path}/gold', f'--results={path.parent}'
  message = evaluate.refuses(f'--workdir={tmp_path}/another', *flags[1:], *gold)
  assert f'{path} is the result of another run, {run}' in message
  # They are no results of translations.
  status, _, err = evaluate(*flags[:-1], '--beam_size=1')
  assert status == 0, err


SCORED = ['--source={folder}/test.en', '--reference={folder}/test.de', '--score']


@pytest.mark.parametrize(('flags', 'facts'), [
    (['--alignments='], ['--alignments= names nothing']),
    (['--alignment_gold='], ['--alignment_gold= names nothing']),
    (['--alignments=-'], ['--alignments must name a file; standard output is for --output']),
    (['--alignments={folder}'], ['--alignments must name a file', 'is a directory']),
    (['--alignments={folder}/x', '--output={folder}/../{folder.name}/x'],
     ['--output and --alignments must name two files; both name']),
    (['--source={folder}/test.en', '--alignments={folder}/test.en'],
     ['test.en would replace what is read']),
    (['--alignments={folder}/test.de'], ['--alignments', 'test.de would replace what is read']),
    ([*SCORED, '--alignment_gold={folder}/empty', '--alignments={folder}/empty'],
     ['empty would replace what is read']),
    (['--alignments=x', '--nbest=2'], ['for one translation of each sentence; leave out --nbest']),
    (['--alignments=x', '--checkpoint=all'], ['leave out --nbest and --checkpoint=all']),
    (['--alignment_layer=1'], ['--alignment_layer and --alignment_shift need --alignments=FILE']),
    (['--alignment_shift'], ['--alignment_layer and --alignment_shift need --alignments=FILE']),
    (['--alignments=x', '--alignment_layer=2'], ['a layer of the decoder, from 1', 'to 1; got 2']),
    (['--alignments=x', '--alignment_layer=0'], ['a layer of the decoder, from 1', 'to 1; got 0']),
    (['--alignment_gold=x'], ['--alignment_gold is for translations that are given; add --score']),
    ([*SCORED, '--alignment_gold=/nowhere/x'], ['/nowhere/x', 'there is no folder /nowhere']),
    ([*SCORED, '--alignment_gold={folder}/empty'], ['there are 2 pairs', 'empty has 0 lines']),
    ([*SCORED, '--alignment_gold={folder}/test.de'], ['test.de:1: a link must be I-J if it is sure',
                                                      "got 'der'"]),
])
def test_a_mistake_in_alignments_is_one_line(evaluate, folder, trained, flags, facts):
  flags = [flag.format(folder=folder) for flag in flags]
  message = evaluate.refuses(f'--workdir={trained}', *flags)
  for fact in facts:
    assert fact in message, message
  assert not list(trained.glob('eval/*.json')) and not (folder / 'x').exists()
