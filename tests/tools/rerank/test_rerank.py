"""N-best lists are reranked by their candidates, and the choices are scored like translations."""

import json

import pytest

from transformer.tools.rerank.minimum_risk import choose, read_lists


@pytest.fixture(scope='module')
def rerank(start_command):
  yield from start_command('transformer.tools.rerank.__main__')


@pytest.fixture(scope='module')
def samples(evaluate, trained, tmp_path_factory):
  """Returns the file of four samples of each sentence of the test split, and their result."""
  folder = tmp_path_factory.mktemp('samples')
  status, _, err = evaluate(
    f'--workdir={trained}',
    f'--results={folder}',
    '--sample',
    '--nbest=4',
    '--beam_size=4',
    f'--output={folder}/nbest',
    '--bleu_tokenize=char',
  )
  assert status == 0, err
  (result,) = folder.glob('*.json')
  return folder / 'nbest', result


def test_samples_are_weighed_and_scored(rerank, samples, tmp_path):
  nbest, path = samples
  content = json.loads(path.read_text('utf-8'))
  status, out, err = rerank(
    f'--nbest={nbest}',
    f'--result={path}',
    '--output=-',
    '--metric=tests.commands.test_scoring:words',
  )
  assert status == 0, err
  lines = out.removesuffix('\n').split('\n')
  chosen = path.with_name(f'{path.stem}.mbrchrF2++.4.json')
  result = json.loads(chosen.read_text('utf-8'))
  assert f'also in {chosen}' in err and result['more'] == {
    'bleu': 'char',
    'mbr': 'chrF2++.4',
  }
  scores = {metric['name']: metric for metric in result['metrics']}
  assert scores['words']['score'] == sum(len(line.split()) for line in lines) / 2
  assert '|tok:char|' in scores['BLEU']['signature']
  sentences = [
    json.loads(line)
    for line in chosen.with_name(f'{chosen.stem}.sentences.jsonl')
    .read_text('utf-8')
    .splitlines()
  ]
  assert [sentence['translation'] for sentence in sentences] == lines
  kept = ('text', 'steps', 'seed', 'decode', 'workdir', 'text_sha256')
  assert all(result[key] == content[key] for key in kept)
  lists = [[text for text, _ in candidates] for candidates in read_lists(nbest)]
  assert [len(texts) for texts in lists] == [4, 4]
  assert lines == choose(lists, 1)


def test_without_a_result_it_writes_the_choices(rerank, tmp_path):
  texts = [
    'no such thing',
    'a cat sat on the mat',
    'the cat sat on the mat',
    'the cat sat on a mat',
  ]
  (tmp_path / 'nbest').write_text(
    ''.join(f'0 ||| {text} ||| -1.5\n' for text in texts) + '1 |||  ||| 0.000000\n',
    'utf-8',
  )
  status, out, err = rerank(f'--nbest={tmp_path}/nbest')
  assert (status, out) == (0, 'the cat sat on the mat\n\n'), err


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    ([], '--nbest=FILE is needed'),
    (['--nbest={nbest}', '--metric=m:f'], 'give --result=FILE'),
    (['--nbest={result}'], 'line 1 of {result} should be NUMBER ||| TEXT ||| SCORE'),
    (['--nbest={nbest}', '--result={nbest}'], 'should be as eval.py writes it'),
    (['--nbest={other}'], 'line 2 of {other} should be'),
    (['--nbest={short}', '--result={result}'], 'has 1 sentences'),
  ],
)
def test_a_mistake_is_one_line(rerank, samples, tmp_path, flags, fact):
  names = {
    'nbest': samples[0],
    'result': samples[1],
    'other': tmp_path / 'other',
    'short': tmp_path / 'short',
  }
  names['other'].write_text('0 ||| a ||| -1\n2 ||| a ||| -1\n')
  names['short'].write_text('0 ||| a ||| -1\n')
  assert fact.format(**names) in rerank.refuses(
    *(flag.format(**names) for flag in flags)
  )
