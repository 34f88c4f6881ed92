"""A run on a treebank is trained, scored by F1, and compared; it writes trees with their words."""

import json
import re

import pytest

from transformer.tools.parse import bracketing
from transformer.tools.parse.treebank import parse_tree, read_trees

TREES = [
  '(S (NP-SBJ (DT A) (NN man)) (VP (VBZ climbs) (NP (DT a) (NN rock))) (. .))',
  '(S (NP-SBJ (CD Two) (NNS women)) (VP (VBP sit) (PP (IN on) (NP (DT a) (NN bench)))) (. .))',
  '(S (NP-SBJ (DT The) (NN dog)) (VP (VBZ runs)) (. .))',
  '(NP (DT A) (NN child))',
]
CHANGES = (
  '--config.data.source=transformer.tools.parse.source:Trees',
  '--config.train.valid_metric=transformer.tools.parse.scores:f1',
  '--config.train.best_by=f1',
  '--config.data.vocabulary_size=300',
  '--config.train.steps=4',
  '--config.train.eval_every=2',
  '--config.train.checkpoint_every=2',
)
NAMES = ['F1', 'precision', 'recall']


@pytest.fixture(scope='module')
def treebank(tmp_path_factory):
  folder = tmp_path_factory.mktemp('treebank')
  (folder / 'train.mrg').write_text(''.join(f'( {tree} )\n' for tree in TREES * 4))
  (folder / 'valid.mrg').write_text('\n'.join(TREES[:2]))
  (folder / 'test.mrg').write_text('\n'.join(TREES[1:]).replace(' (VP', '\n  (VP'))
  (folder / 'words').write_text(
    ''.join(' '.join(tree.words) + '\n' for tree in read_trees(folder / 'test.mrg'))
  )
  return folder


@pytest.fixture(scope='module')
def run(train, folder, treebank):
  workdir = treebank / 'run'
  status, _, err = train(
    f'--config={folder}/tiny.py',
    f'--workdir={workdir}',
    *CHANGES,
    f'--config.data.dir={treebank}',
  )
  assert status == 0, err
  assert re.search(r'step 4/4  valid loss .*  valid F1 \d', err), err
  assert re.search(r'the best step on the validation split is [24], with F1 ', err), err
  return workdir


@pytest.fixture(scope='module')
def parse(start_command):
  yield from start_command('transformer.tools.parse.__main__')


@pytest.fixture(scope='module')
def compare(start_command):
  yield from start_command('transformer.tools.compare.__main__', takes_arguments=True)


@pytest.fixture(scope='module')
def scored(parse, run):
  status, out, err = parse(f'--workdir={run}', '--output=-', '--examples=1')
  assert status == 0, err
  (result,) = (run / 'eval').glob('test.trees.*0.6.json')
  (sentences,) = (run / 'eval').glob('test.trees.*.sentences.jsonl')
  return (
    out,
    err,
    json.loads(result.read_bytes()),
    [json.loads(line) for line in sentences.read_text('utf-8').splitlines()],
  )


def f1_of(out):
  return re.search(r'\n  F1 +(\S+) ', out)[1]


def test_scores_are_those_of_the_written_trees(run, scored, treebank):
  rows = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
  assert [0 <= row['valid/f1'] <= 100 for row in rows if 'valid/loss' in row] == [
    True,
    True,
  ]
  out, people, result, sentences = scored
  assert [metric['name'] for metric in result['metrics']] == NAMES
  headline = result['metrics'][0]
  assert re.search(
    rf'test.trees: 3 sentences .*\n  F1 +{headline["score"]:.2f} ', people
  )
  low, high = headline['interval_95']
  assert re.search(rf'{low:.2f} … {high:.2f} +evalb\|prm:COLLINS', people)
  assert (
    f'exact {result["exact"]:.2f} %, no tree until mended {result["mended"]:.2f} %'
    in people
  )
  assert '\nreference\n(S (NP ' in f'\n{people}' and '\nparse\n(' in people
  counts = []
  for sentence, tree, line in zip(
    sentences, read_trees(treebank / 'test.mrg'), out.splitlines(), strict=True
  ):
    assert (
      sentence['translation'] == line and parse_tree(sentence['references'][0]) == tree
    )
    assert sentence['source'] == ' '.join(tree.words)
    counts.append(bracketing.count(tree, parse_tree(line)))
    assert sentence['brackets'] == list(counts[-1])
    assert [sentence[name] for name in NAMES] == bracketing.figures(counts[-1:])
  assert [metric['score'] for metric in result['metrics']] == bracketing.figures(counts)
  assert result['mended'] == pytest.approx(
    100 * sum(bool(sentence['mends']) for sentence in sentences) / 3
  )


@pytest.mark.long
def test_a_file_of_words_is_parsed_and_scored_against_a_file_of_trees(
  parse, evaluate, run, treebank, scored, tmp_path
):
  def written(*flags):
    status, out, err = parse(f'--workdir={run}', f'--source={treebank}/words', *flags)
    assert status == 0, err
    return out

  assert f1_of(written(f'--reference={treebank}/test.mrg')) == f1_of(f'\n{scored[1]}')
  assert written() == scored[0]
  lines = [
    line.split(' ||| ') for line in written('--nbest=2', '--beam_size=2').splitlines()
  ]
  assert {number for number, *_ in lines} == {'0', '1', '2'}
  trees = [(number, tree) for number, tree, _ in lines]
  assert len(set(trees)) == len(trees) and all(
    parse_tree(tree).words for _, tree in trees
  )
  # eval.py has the same F1 of the linearised trees.
  status, out, err = evaluate(
    f'--workdir={run}',
    '--metric=transformer.tools.parse.scores:f1',
    f'--results={tmp_path}',
  )
  assert status == 0, err
  assert re.search(r'\n  f1 +(\S+) ', out)[1] == f1_of(f'\n{scored[1]}')


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    (
      ['--source={words}', '--reference={folder}/valid.mrg'],
      'words of a tree of {folder}/valid.mrg, in order; they have 3 lines and 2 trees',
    ),
    (
      ['--source={words}', '--reference={folder}/other.mrg'],
      'must have the words of a tree',
    ),
    (
      ['--source={words}', '--reference={words}'],
      'must hold trees in Penn Treebank brackets',
    ),
    (['--checkpoint=all'], '--checkpoint=all is for eval.py'),
    (['--split=test', '--output={folder}/test.mrg'], 'would replace what is read'),
  ],
)
def test_a_mistake_is_one_line(parse, run, treebank, flags, fact):
  (treebank / 'other.mrg').write_text('\n'.join(TREES[:3]))
  names = {'folder': treebank, 'words': treebank / 'words'}
  assert fact.format(**names) in parse.refuses(
    f'--workdir={run}', *(flag.format(**names) for flag in flags)
  )


def test_a_run_without_trees_is_refused(parse, trained):
  assert parse.refuses() == '--workdir=DIR is needed, the directory of a run'
  assert 'must have learnt from trees' in parse.refuses(f'--workdir={trained}')


@pytest.mark.long
def test_systems_are_compared_by_f1(compare, parse, run, tmp_path):
  for beams in (1, 2):
    status, _, err = parse(
      f'--workdir={run}', f'--beam_size={beams}', f'--results={tmp_path}/{beams}'
    )
    assert status == 0, err
  status, _, err = compare(
    f'{tmp_path}/1',
    f'{tmp_path}/2',
    '--text=test.trees',
    '--allow_unequal_decoding',
    f'--output={tmp_path}/found.json',
  )
  assert status == 0, err
  compared = json.loads((tmp_path / 'found.json').read_bytes())
  assert list(compared['systems'][f'{tmp_path}/2']['scores']) == NAMES
