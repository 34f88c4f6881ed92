"""A user error in scoring ends in one line and status 1, without partial files."""

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.command_fixtures import ROOT

FILE, BOTH = (
  '--source={folder}/test.en',
  '--source={folder}/test.en --reference={folder}/test.de',
)


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    ('--workdir=', '--workdir= is empty'),
    ('--workdir=/nowhere', '/nowhere holds no run'),
    ('--source=- --reference=-', 'must name a file; standard input is for --source'),
    ('--source=', '--source= is empty'),
    ('--reference=x', '--reference requires --source'),
    ('--split=test --source=x', '--source and --split are mutually exclusive'),
    (f'{FILE} --data_dir=x', '--source and --data_dir are mutually exclusive'),
    ('--split=test,valid --output=-', '--split=test,valid names several splits'),
    ('--split=test,nothing', 'nothing.en'),
    ('--source=/nowhere/x', 'there is no folder /nowhere'),
    ('--data_dir=/nowhere', 'if the dataset has moved, pass --data_dir=DIR'),
    (
      '--nbest=8 --output=-',
      'nbest=8 exceeds beam_size=4; set beam_size=8',
    ),
    ('--nbest=3 --sample --output=-', 'exceeds beam_size=1; set beam_size=3'),
    ('--nbest=0', 'nbest must be at least 1; got 0'),
    ('--nbest=2', '--nbest=2 needs a file for its lists; pass --output=FILE'),
    (
      '--checkpoint=all --output=-',
      '--checkpoint=all cannot be combined with --output',
    ),
    ('--metric=nothing_here:f', 'the metric nothing_here:f cannot be imported'),
    (f'{FILE} --metric=math:fsum --examples=2', '--metric requires references'),
    ('--source=- --results=r', '--results requires references'),
    ('--bleu_tokenize=kanji', 'bleu_tokenize must be one of 13a'),
    (f'{BOTH} --output={{folder}}/test.de', 'would overwrite'),
    (f'{FILE} --reference={{folder}}/unequal.de', 'unequal.de has 3 lines'),
    ('--ensemble=/nowhere', '/nowhere holds no run'),
    ('--average=0', 'at least 1; got 0'),
    ('--average=5', 'has 2 checkpoints up to step 2, too few to average 5'),
    ('--checkpoint=bset', "best, latest or one of the steps 1, 2; got 'bset'"),
    ('--beam_size=0', 'beam_size must be at least 1; got 0'),
    ('--beam_size=1.5', 'int'),
    ('--dtype=half', "dtype must be one of trained, float32, bfloat16; got 'half'"),
    ('--batch_size=0', 'batch_size must be at least 1; got 0'),
    ('--top_p=0.5', 'only sampling uses top_p'),
    ('--seed=0 --nosample', 'only sampling uses seed'),
    ('--sample --top_p=1.5', 'top_p must be above 0 and at most 1; got 1.5'),
    ('--sample --seed=-1', 'seed must be at least 0 and below 4294967296; got -1'),
    ('--source={folder}/latin.de', 'latin.de must be UTF-8; line 2 is not'),
    ('--source={folder}/empty --reference={folder}/empty', 'nothing to score'),
    (f'{FILE} --output={{folder}}', '--output must name a file'),
    (f'{BOTH} --results={{folder}}/empty', '--results needs a directory'),
    (f'{FILE} --output={{folder}}/run/vocabulary.model', 'would overwrite'),
    (f'{FILE} --output={{folder}}/run/metrics.jsonl', 'would overwrite'),
    ('--output={folder}/../{folder.name}/test.de', 'would overwrite'),
    ('--nonsense=3', "Unknown command line flag 'nonsense'"),
    ('stray', "argument 'stray'"),
  ],
)
def test_user_error_in_scoring_is_a_one_line_message(
  evaluate, folder, trained, flags, fact
):
  before = (folder / 'test.de').read_bytes()
  message = evaluate.rejects(
    f'--workdir={trained}', *flags.format(folder=folder).split()
  )
  assert fact in message, message
  assert (
    not list(trained.glob('eval/*.json'))
    and (folder / 'test.de').read_bytes() == before
  )


def test_a_run_without_a_checkpoint_cannot_be_scored(evaluate, trained, tmp_path):
  shutil.copytree(
    trained, tmp_path / 'run', ignore=shutil.ignore_patterns('checkpoints')
  )
  assert 'no checkpoint; train the run first' in evaluate.rejects(
    f'--workdir={tmp_path}/run'
  )
  (tmp_path / 'run' / 'checkpoints').mkdir()
  assert 'no checkpoint; train the run first' in evaluate.rejects(
    f'--workdir={tmp_path}/run'
  )


def test_a_split_is_scored_as_the_flags_say(evaluate, folder, trained, tmp_path):
  status, out, err = evaluate.at_a_terminal(
    f'--workdir={trained}',
    f'--results={tmp_path}',
    '--split=valid',
    '--checkpoint=1',
    '--alpha=1.5',
    '--beam_size=1',
    '--output=-',
    '--examples=1',
  )
  assert status == 0, err
  assert err.count('BLEU') == 1 and '  translation  ' in err
  assert 'translating: 0/2 0% |' in err and re.search(r'translating: [12]/2', err)
  metric = [re.match(r'  \S+ +\d+\.\d\d ', line) for line in err.splitlines()]
  assert sum(map(bool, metric)) == 2
  path = tmp_path / 'valid.step1.beam1.alpha1.5.json'
  result = json.loads(path.read_text(encoding='utf-8'))
  assert (result['steps'], result['sentences']) == ([1], 2)
  assert (result['decode']['alpha'], result['decode']['beam_size']) == (1.5, 1)
  assert result['commit'] and '--alpha=1.5' in result['command']
  lines = [
    json.loads(line)
    for line in path.with_suffix('.sentences.jsonl').read_text('utf-8').splitlines()
  ]
  assert [line['translation'] for line in lines] == out.splitlines()
  assert [
    [line['source'] for line in lines],
    [line['references'][0] for line in lines],
  ] == [
    (folder / f'valid.{language}').read_text('utf-8').splitlines()
    for language in ('en', 'de')
  ]
  assert all(set(line) >= {'BLEU', 'chrF2++', 'model_score'} for line in lines)


def test_files_are_scored_whatever_their_names(evaluate, folder, trained, tmp_path):
  source = tmp_path / 'n\udcffme.en'  # It is not UTF-8.
  shutil.copy(folder / 'test.en', source)
  status, out, err = evaluate(
    f'--workdir={trained}',
    f'--source={source}',
    f'--reference={folder}/test.de',
    f'--output={tmp_path}/o\udcfft',
    '--beam_size=1',
    f'--results={tmp_path}/results',
    '--bleu_tokenize=none',
  )
  assert status == 0, err
  assert len((tmp_path / 'o\udcfft').read_text('utf-8').splitlines()) == 2
  (path,) = (tmp_path / 'results').glob('*.json')
  result = json.loads(path.read_bytes().decode('utf-8'))
  assert result['text'].startswith('n\udcffme.en.') and path.name.startswith(
    'n\udcffme.en.'
  )
  assert f'--source={source}' in result['command']
  assert [row['name'] for row in result['metrics']] == ['BLEU', 'chrF2++']
  first, *lines, last = out.splitlines()
  assert first.startswith('n\\udcffme.en.') and '2 sentences' in first
  assert last.startswith('also in ')
  for line, row in zip(lines, result['metrics'], strict=True):
    low, high = row['interval_95']
    assert line.split(maxsplit=5) == [
      row['name'],
      f'{row["score"]:.2f}',
      f'{low:.2f}',
      '…',
      f'{high:.2f}',
      row['signature'],
    ]


def test_a_file_that_cannot_be_written_costs_no_scores(evaluate, trained, tmp_path):
  status, out, err = evaluate(
    f'--workdir={trained}',
    '--beam_size=1',
    f'--results={tmp_path}',
    '--output=/dev/full',
  )
  assert status == 1 and 'error: /dev/full cannot be written: No space left' in err
  assert '\n  BLEU ' in out and '\n  chrF2++ ' in out
  assert sorted(path.suffix for path in tmp_path.iterdir()) == ['.json', '.jsonl']


CALLS = []


def second(sources, translations, references):
  """A custom metric that fails when it is called for the first time."""
  CALLS.append(references)
  return 5.0 if len(CALLS) > 1 else math.nan


def test_every_checkpoint_is_scored_and_the_best_marked(evaluate, trained, tmp_path):
  shutil.copytree(trained, tmp_path / 'run')
  status, out, err = evaluate(
    f'--workdir={tmp_path}/run',
    '--checkpoint=all',
    '--beam_size=1',
    f'--metric={__name__}:second',
  )
  assert status == 0 and err.count(':second is skipped') == 1, err
  lines = re.findall(r'\nstep +(\d .*)', out)
  results = tmp_path / 'run' / 'eval'
  table = json.loads((results / 'test.all.beam1.alpha0.6.json').read_text('utf-8'))
  assert (table['workdir'], table['decode']['beam_size']) == (str(tmp_path / 'run'), 1)
  rows = table['checkpoints']
  assert table['steps'] == [row['step'] for row in rows] == [1, 2]
  # The metric failed for the first of the results, so that its place is empty.
  assert [row.get('second') for row in rows] == [None, 5.0]
  assert [line.count('.') for line in lines] == [2, 3]
  assert all(
    f'BLEU {row["BLEU"]:.2f}' in line for line, row in zip(lines, rows, strict=True)
  )
  best = max(rows, key=lambda row: row['BLEU'])['step']
  assert [int(line.split()[0]) for line in lines if line.endswith('*')] == [best]
  for row in rows:
    alone = json.loads(
      (results / f'test.step{row["step"]}.beam1.alpha0.6.json').read_text('utf-8')
    )
    assert row['BLEU'] == alone['metrics'][0]['score']


@pytest.mark.long
def test_lists_of_the_best_and_ensembles(evaluate, folder, trained, tmp_path):
  def lines_of(*flags):
    status, out, err = evaluate(
      f'--workdir={trained}', f'--source={folder}/test.en', *flags
    )
    assert status == 0, err
    return out.splitlines()

  plain = lines_of()
  rows = [line.split(' ||| ') for line in lines_of('--nbest=3')]
  lists = [
    [(text, float(score)) for number, text, score in rows if number == str(line)]
    for line in range(2)
  ]
  assert sum(map(len, lists)) == len(rows) > 3
  assert [pairs[0][0] for pairs in lists] == plain
  assert all(pairs == sorted(pairs, key=lambda pair: -pair[1]) for pairs in lists)

  shutil.copytree(trained, tmp_path / 'twin')
  assert lines_of(f'--ensemble={tmp_path}/twin') == plain
  # A step number refers to --workdir; the best checkpoint of the other run is its last.
  status, _, err = evaluate(
    f'--workdir={trained}',
    f'--ensemble={tmp_path}/twin',
    '--checkpoint=1',
    f'--results={tmp_path}/results',
  )
  assert status == 0, err
  (path,) = (tmp_path / 'results').glob('*.ensemble2.*.json')
  result = json.loads(path.read_text('utf-8'))
  assert (result['steps'], result['ensemble_steps']) == ([1], [[2]])
  for digests, checkpoint in (
    (result['checkpoints_sha256'], trained / 'checkpoints' / '1'),
    (*result['ensemble_checkpoints_sha256'], tmp_path / 'twin' / 'checkpoints' / '2'),
  ):
    assert digests == [
      hashlib.sha256((checkpoint / 'digests.json').read_bytes()).hexdigest()
    ]


@pytest.mark.long
def test_samples_and_search_results_are_distinguished(evaluate, trained, tmp_path):
  for flags, stem in (
    ('--sample', 'samples1.alpha0.6.temperature1.top_k0.top_p1.seed0'),
    (
      '--sample --beam_size=3 --temperature=2 --top_k=7 --top_p=0.9 --seed=5',
      'samples3.alpha0.6.temperature2.top_k7.top_p0.9.seed5',
    ),
    ('--beam_size=1 --dtype=bfloat16', 'beam1.alpha0.6.dtypebfloat16'),
  ):
    outputs = set()
    for _ in range(2 if 'sample' in flags else 1):
      status, out, err = evaluate(
        f'--workdir={trained}', f'--results={tmp_path}', '--output=-', *flags.split()
      )
      assert status == 0, err
      outputs.add(out)
    result = json.loads((tmp_path / f'test.step2.{stem}.json').read_text('utf-8'))
    assert len(outputs) == 1 and result['decode']['sample'] == stem.startswith(
      'samples'
    )
    assert result['seed'] == (int(stem[-1]) if 'seed' in stem else None)


def test_data_that_has_moved_is_scored_where_it_is_with_averaged_weights(
  evaluate, folder, trained, tmp_path
):
  shutil.copytree(trained, tmp_path / 'run')
  (tmp_path / 'moved').mkdir()
  for language in ('en', 'de'):
    lines = (
      (folder / f'train.{language}')
      .read_text(encoding='utf-8')
      .splitlines(keepends=True)
    )
    (tmp_path / 'moved' / f'train.{language}').write_text(
      ''.join(lines[:3]), encoding='utf-8'
    )
  status, out, err = evaluate(
    f'--workdir={tmp_path}/run',
    '--split=train',
    '--average=2',
    '--checkpoint=latest',
    f'--data_dir={tmp_path}/moved',
    '--beam_size=1',
  )
  assert status == 0, err
  (path,) = (tmp_path / 'run' / 'eval').glob('*.json')
  assert path.name == 'train.step2.average2.beam1.alpha0.6.json' and str(path) in out
  assert json.loads(path.read_text(encoding='utf-8'))['sentences'] == 3


def test_a_damaged_checkpoint_is_named_and_does_not_keep_others_from_being_scored(
  evaluate, trained, tmp_path
):
  shutil.copytree(trained, tmp_path / 'run')
  for path in (tmp_path / 'run' / 'checkpoints' / '1' / 'params').rglob('*'):
    if path.is_file():
      os.truncate(path, path.stat().st_size // 2)
  damage = f'{tmp_path}/run/checkpoints/1 is damaged: params/'
  assert damage in evaluate.rejects(f'--workdir={tmp_path}/run', '--checkpoint=1')
  taken = tmp_path / 'run/eval/valid.step2.beam1.alpha0.6.json'
  taken.write_text(
    json.dumps({'workdir': str(tmp_path / 'run'), 'text_sha256': 'another'})
  )
  status, out, err = evaluate(
    f'--workdir={tmp_path}/run',
    '--checkpoint=all',
    '--beam_size=1',
    '--split=test,valid',
  )
  assert status == 1 and err.count(damage) == 1 and 'error: 2 checkpoints' in err, err
  assert err.count(f'{taken} is the result of a different text') == 1
  table = json.loads(
    (tmp_path / 'run/eval/test.all.beam1.alpha0.6.json').read_text('utf-8')
  )
  assert table['steps'] == [2] and 'also in' in out


def test_a_config_that_does_not_fit_the_checkpoint_is_rejected(
  evaluate, trained, tmp_path, change_settings
):
  shutil.copytree(trained, tmp_path / 'run')
  change_settings(tmp_path / 'run', model__num_layers=2)
  assert 'incompatible with config.json' in evaluate.rejects(
    f'--workdir={tmp_path}/run'
  )


def test_a_translation_imports_nothing_that_only_training_or_scores_need(
  folder, trained, tmp_path
):
  done = subprocess.run(
    [
      sys.executable,
      '-X',
      'importtime',
      ROOT / 'eval.py',
      f'--workdir={trained}',
      f'--source={folder}/test.en',
      f'--output={tmp_path}/out',
      '--beam_size=1',
    ],
    capture_output=True,
    check=True,
    text=True,
    stdin=subprocess.DEVNULL,
  )
  imported = {
    line.rpartition('|')[2].strip().partition('.')[0]
    for line in done.stderr.splitlines()
    if line.startswith('import time:')
  }
  assert (
    'jax' in imported and len((tmp_path / 'out').read_text('utf-8').splitlines()) == 2
  )
  assert not imported & {
    'orbax',
    'optax',
    'sacrebleu',
    'tensorboardX',
    'tensorflow_datasets',
  }
