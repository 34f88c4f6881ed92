"""A run on a treebank is trained, scored by F1, and compared; it writes trees with their words."""

import json
import re

import pytest

from transformer.data.linearisation import linearise
from transformer.data.treebank import parse_tree, read_trees
from transformer.data.vocabulary import Vocabulary
from transformer.evaluation import bracketing

TREES = [
    '(S (NP-SBJ (DT A) (NN man)) (VP (VBZ climbs) (NP (DT a) (NN rock))) (. .))',
    '(S (NP-SBJ (CD Two) (NNS women)) (VP (VBP sit) (PP (IN on) (NP (DT a) (NN bench)))) (. .))',
    '(S (NP-SBJ (DT The) (NN dog)) (VP (VBZ runs)) (. .))',
    '(NP (DT A) (NN child))',
]
CHANGES = ('--config.data.source=trees', '--config.data.vocabulary_size=300',
           '--config.train.steps=4', '--config.train.eval_every=2',
           '--config.train.checkpoint_every=2')


@pytest.fixture(scope='module')
def treebank(tmp_path_factory):
  folder = tmp_path_factory.mktemp('treebank')
  (folder / 'train.mrg').write_text(''.join(f'( {tree} )\n' for tree in TREES * 4))
  (folder / 'valid.mrg').write_text('\n'.join(TREES[:2]))
  (folder / 'test.mrg').write_text('\n'.join(TREES[1:]).replace(' (VP', '\n  (VP'))
  (folder / 'words').write_text(''.join(
      ' '.join(tree.words) + '\n' for tree in read_trees(folder / 'test.mrg')))
  return folder


@pytest.fixture(scope='module')
def run(train, folder, treebank):
  workdir = treebank / 'run'
  status, _, err = train(f'--config={folder}/tiny.py', f'--workdir={workdir}', *CHANGES,
                         f'--config.data.dir={treebank}')
  assert status == 0, err
  assert re.search(r'step 4/4  valid loss .*  valid F1 \d', err), err
  assert re.search(r'the best step on the validation split is [24], with F1 ', err), err
  return workdir


@pytest.fixture(scope='module')
def compare(start_command):
  yield from start_command('transformer.tools.compare.__main__', takes_arguments=True)


@pytest.fixture(scope='module')
def attend(start_command):
  yield from start_command('transformer.tools.attend.__main__')


@pytest.fixture(scope='module')
def scored(evaluate, run):
  status, out, err = evaluate(f'--workdir={run}', '--output=-', '--examples=1')
  assert status == 0, err
  result, = (run / 'eval').glob('test.*0.6.json')
  sentences, = (run / 'eval').glob('*.sentences.jsonl')
  return out, err, json.loads(result.read_bytes()), [
      json.loads(line) for line in sentences.read_text('utf-8').splitlines()]


def test_validation_has_f1(run):
  rows = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
  assert [0 <= row['valid/f1'] <= 100 for row in rows if 'valid/loss' in row] == [True, True]
  assert 'F1 of trees' in (run / 'curves.svg').read_text('utf-8')


def test_trees_are_written_with_their_words(scored, treebank):
  out, *_ = scored
  wanted = read_trees(treebank / 'test.mrg')
  assert [parse_tree(line).words for line in out.splitlines()] == [tree.words for tree in wanted]


def test_scores_are_printed_and_written_with_those_of_each_sentence(scored, treebank):
  out, people, result, sentences = scored
  names = ['F1', 'precision', 'recall']
  assert [each['name'] for each in result['metrics']] == names
  headline = result['metrics'][0]
  assert re.search(rf'test: 3 sentences .*\n  F1 +{headline["score"]:.2f} ', people)
  low, high = headline['interval_95']
  assert re.search(rf'{low:.2f} … {high:.2f} +evalb\|prm:COLLINS', people)
  assert f'exact {result["exact"]:.2f} %, no tree until mended {result["mended"]:.2f} %' in people
  assert '\nreference\nS\n├─ NP  Two women\n' in f'\n{people}' and '\nparse\n' in people
  wanted = read_trees(treebank / 'test.mrg')
  counts = []
  for sentence, tree, line in zip(sentences, wanted, out.splitlines(), strict=True):
    assert sentence['translation'] == line and parse_tree(sentence['references'][0]) == tree
    assert sentence['source'] == ' '.join(tree.words)
    counts.append(bracketing.count(tree, parse_tree(line)))
    assert sentence['brackets'] == list(counts[-1])
    assert [sentence[name] for name in names] == list(bracketing.figures(counts[-1:]))
  assert [each['score'] for each in result['metrics']] == list(bracketing.figures(counts))
  assert result['mended'] == pytest.approx(
      100 * sum(bool(each['mends']) for each in sentences) / 3)


@pytest.mark.long
def test_a_file_of_words_is_scored_against_a_file_of_trees(evaluate, run, treebank, scored):
  flags = f'--workdir={run}', f'--source={treebank}/words'
  status, out, err = evaluate(*flags, f'--reference={treebank}/test.mrg')
  assert status == 0, err
  assert re.search(rf'\n  F1 +{scored[2]["metrics"][0]["score"]:.2f} ', out)
  status, out, err = evaluate(*flags, '--nbest=2', '--beam_size=2')
  assert status == 0, err
  lines = [line.split(' ||| ') for line in out.splitlines()]
  assert {number for number, *_ in lines} == {'0', '1', '2'}
  trees = [(number, tree) for number, tree, _ in lines]
  assert len(set(trees)) == len(trees) and all(parse_tree(tree).words for _, tree in trees)
  status, out, err = evaluate(*flags, f'--reference={treebank}/test.mrg', '--score')
  assert status == 0, err
  vocabulary = Vocabulary.load(run / 'vocabulary.model')
  assert [int(line.split('\t')[1]) for line in out.splitlines()] == [
      1 + len(vocabulary.encode(linearise(tree))) for tree in read_trees(treebank / 'test.mrg')]


def test_all_checkpoints_are_scored(evaluate, run, tmp_path):
  status, out, err = evaluate(f'--workdir={run}', '--checkpoint=all', f'--results={tmp_path}')
  assert status == 0, err
  table = [line.split() for line in out.splitlines()[-4:-1]]
  assert table[0] == ['step', 'F1', 'precision', 'recall'] and [row[0] for row in table[1:]] == [
      '2', '4']
  path, = tmp_path.glob('test.all.*.json')
  rows = json.loads(path.read_bytes())['checkpoints']
  assert all(len(row['F1_interval_95']) == 2 for row in rows)
  assert 'test: F1 with its 95 % interval' in path.with_suffix('.svg').read_text('utf-8')


@pytest.mark.parametrize(('flags', 'fact'), [
    (['--source={words}', '--reference={folder}/valid.mrg'],
     'has 3 lines, {folder}/valid.mrg has 2 trees'),
    (['--source={words}', '--reference={folder}/other.mrg'],
     'line 1 of {words} must have the words of tree 1 of {folder}/other.mrg, '
     "'A man climbs a rock .'; got 'Two women sit on a bench .'"),
    (['--source={words}', '--reference={words}'], 'must hold trees in Penn Treebank brackets'),
    (['--source={words}', *['--reference={folder}/test.mrg'] * 2], 'against one reference'),
    (['--split=test', '--output={folder}/test.mrg'], 'would replace what is read'),
    (['--split=nothing'], 'nothing.mrg'),
    (['--require=x'], '--require and --avoid are for translations; this run parses'),
])
def test_a_mistake_is_one_line(evaluate, run, treebank, flags, fact):
  (treebank / 'other.mrg').write_text('\n'.join(TREES[:3]))
  names = {'folder': treebank, 'words': treebank / 'words'}
  assert fact.format(**names) in evaluate.refuses(
      f'--workdir={run}', *(flag.format(**names) for flag in flags))


def page_of(attend, *flags):
  """Returns the target tokens and the drawn words of each sentence, and the whole page."""
  status, page, err = attend(*flags, '--output=-')
  assert status == 0, err
  data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
  return ([each['target'][:-1] for each in data['sentences']],
          [re.findall(r'<text[^>]*>(.*?)</text>', svg)
           for svg in re.findall(r'<svg xmlns.*?</svg>', page)], page)


def test_the_page_of_attention_draws_the_runs_own_parse(attend, run):
  _, (drawn,), _ = page_of(attend, f'--workdir={run}', '--sentence=The dog runs .')
  assert drawn[-4:] == ['The', 'dog', 'runs', '.'] and len(drawn) > 4


def test_a_given_parse_has_either_form_and_is_drawn(attend, run, treebank, tmp_path):
  vocabulary = Vocabulary.load(run / 'vocabulary.model')
  trees = read_trees(treebank / 'test.mrg')
  wanted = [[vocabulary.piece(token) for token in vocabulary.encode(linearise(tree))]
            for tree in trees]
  (tmp_path / 'words').write_text('\n' + (treebank / 'words').read_text())
  (tmp_path / 'sequences').write_text(''.join(f'{linearise(tree)}\n' for tree in trees))
  for given in (treebank / 'test.mrg', tmp_path / 'sequences'):
    tokens, drawn, _ = page_of(attend, f'--workdir={run}', f'--source={tmp_path}/words',
                               f'--translation={given}')
    assert tokens == wanted
    assert drawn == [[*(each.label for each in tree.brackets), *tree.words] for tree in trees]
  *_, page = page_of(attend, f'--workdir={run}', '--sentence=The dog', '--translation=(NP XX')
  assert 'no tree until it was mended: missing 1, unclosed 1.' in page


@pytest.mark.parametrize(('tree', 'fact'), [
    ('ein hund', "--translation must hold trees in Penn Treebank brackets; line 1 has the word "
                 "'ein' without a bracket of its own; linearised trees, such as (S (NP XX )NP )S"),
    ('(NP (DT a) (NN dog)', '--translation must hold trees in Penn Treebank brackets; line 1'),
    ('(NP (DT a) (NN cat))', "must have the words of its sentence, 'a dog'; got 'a cat'"),
    ('(NP (DT a) (NN dog)) (X (Y z))', 'there are 1 sentences and 2 trees'),
    ('(NP XX XX )NP\n(NP XX )NP', 'there are 1 sentences and 2 trees'),
    (' ', 'there are 1 sentences and 0 trees')])
def test_a_given_parse_that_is_none_is_one_line(attend, run, tree, fact):
  assert fact in attend.refuses(f'--workdir={run}', '--sentence=a dog', f'--translation={tree}')
  assert not (run / 'eval' / 'attention.html').exists()


@pytest.mark.long
def test_systems_are_compared_by_f1(compare, evaluate, run, tmp_path):
  for beams in (1, 2):
    status, _, err = evaluate(f'--workdir={run}', f'--beam_size={beams}',
                              f'--results={tmp_path}/{beams}')
    assert status == 0, err
  status, out, err = compare(f'{tmp_path}/1', f'{tmp_path}/2', '--allow_unequal_decoding',
                             f'--output={tmp_path}/found.json')
  assert status == 0, err
  found = json.loads((tmp_path / 'found.json').read_bytes())
  assert [each['metric'] for each in found['differences'][f'{tmp_path}/2']] == [
      'F1', 'precision', 'recall']
  assert 'p, bootstrap' in out
