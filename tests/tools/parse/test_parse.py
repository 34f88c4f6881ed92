"""A run on a treebank is trained and scored by F1; it writes trees with their words."""

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


def test_scores_match_the_written_trees(parse, evaluate, run, treebank, tmp_path):
  rows = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
  evaluated = [row['valid/f1'] for row in rows if 'valid/loss' in row]
  assert len(evaluated) == 2 and all(0 <= score <= 100 for score in evaluated)
  status, out, err = parse(f'--workdir={run}', f'--source={treebank}/words')
  assert status == 0, err
  references = read_trees(treebank / 'test.mrg')
  found = list(map(parse_tree, out.splitlines()))
  assert [tree.words for tree in found] == [tree.words for tree in references]
  wanted = bracketing.score(references, found)
  status, _, err = evaluate(
    f'--workdir={run}',
    '--metric=transformer.tools.parse.scores:evalb',
    f'--results={tmp_path}',
  )
  assert status == 0, err
  (result,) = tmp_path.glob('test.step*.alpha0.6.json')
  metrics = json.loads(result.read_bytes())['metrics']
  scores = {metric['name']: metric['score'] for metric in metrics}
  assert {name: scores[name] for name in wanted} == wanted
  assert 0 <= scores['repaired'] <= 100


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    ([], '--source is missing; pass'),
    (
      ['--source={folder}/words', '--output={folder}/words'],
      'would overwrite',
    ),
  ],
)
def test_user_error_is_a_one_line_message(parse, run, treebank, flags, fact):
  flags = [flag.format(folder=treebank) for flag in flags]
  assert fact in parse.rejects(f'--workdir={run}', *flags)


def test_a_run_without_trees_is_rejected(parse, trained, treebank):
  assert (
    parse.rejects()
    == '--workdir is missing; pass the directory of a run: --workdir=DIR'
  )
  assert 'must be trained on trees' in parse.rejects(
    f'--workdir={trained}', f'--source={treebank}/words'
  )
