"""The card of a run has its facts, invents none, and is never replaced once a user edited it."""

import hashlib
import json
import pathlib
import re
import shutil

import pytest
import yaml

from transformer.tools.card import fact_tables, model_card, report, run_facts

ROOT = pathlib.Path(__file__).parents[3]


def result_of(workdir):
  (path,) = (path for path in (workdir / 'eval').glob('test.*.json'))
  return path, json.loads(path.read_bytes())


def metadata_of(text):
  start, front, _ = text.split('---\n', 2)
  assert start == ''
  return yaml.safe_load(front)


def card_of(workdir, license=''):
  """Returns the card of the last checkpoint, without a look at its weights."""
  facts = run_facts.read_facts(workdir)._replace(steps=[2])
  return model_card.card_text(facts, license)


def test_the_metadata_match_the_run_and_its_scores(scored):
  path, result = result_of(scored)
  metadata = metadata_of(card_of(scored))
  assert (
    metadata['language'] == ['en', 'de'] and metadata['pipeline_tag'] == 'translation'
  )
  assert metadata['license'] == 'unknown' and metadata['metrics'] == [
    'bleu',
    'chrf',
  ]
  ((name, results),) = (model.values() for model in metadata['model-index'])
  assert name == 'scored' and len(results) == 1
  assert results[0]['dataset']['args'] == {'sha256': result['text_sha256']}
  for metric, row in zip(results[0]['metrics'], result['metrics'], strict=True):
    assert (metric['name'], metric['value']) == (row['name'], row['score'])
    assert metric['args']['signature'] == row['signature']
    assert metric['args']['interval_95'] == row['interval_95']
    assert metric['args']['decoding'] == path.stem.removeprefix('test.')
  assert results[0]['metrics'][0]['args']['signature'].startswith('nrefs:1|')


def test_the_hub_reads_the_card_as_the_page_says(scored, capsys):
  pytest.importorskip('huggingface_hub')
  (scored / 'README.md').write_text(card_of(scored, 'mit'), 'utf-8')
  (block,) = re.findall(
    r'```python\n(.*?)```', (ROOT / 'docs/card.md').read_text('utf-8'), re.S
  )
  assert "'RUN/" in block
  exec(block.replace("'RUN/", f"'{scored}/"), names := {})
  data = names['ModelCard'].load(scored / 'README.md').data
  assert (data.license, data.language, data.model_name) == (
    'mit',
    ['en', 'de'],
    'scored',
  )
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in lines] == ['BLEU', 'chrF2++']


def test_the_card_has_digests_versions_cost_and_limits_of_the_run(scored):
  text = card_of(scored)
  record = json.loads((scored / 'run.json').read_bytes())
  _, result = result_of(scored)
  facts = [
    *record['data'].values(),
    record['commit'],
    result['commit'],
    result['text_sha256'],
  ]
  facts += [f'jax {record["packages"]["jax"]}', 'FLOPs', f'{record["parameters"]:,}']
  facts += ['truncated to 64 tokens', '--config=']
  step = result['steps'][-1]
  sealed = (scored / 'checkpoints' / str(step) / 'digests.json').read_bytes()
  # Of the checkpoint of the card, and of the checkpoint that was scored.
  assert text.count(hashlib.sha256(sealed).hexdigest()) == 2
  assert [fact for fact in facts if fact not in text] == []
  # GitHub's tables end a cell at a bar, also in code.
  for line in text.splitlines():
    if line.startswith('| test, 2 sentences'):
      assert len(re.findall(r'(?<!\\)\|', line)) == 7


def test_cells_of_a_markdown_table_are_text():
  rows = [
    ('<b>*x*|[y]',),
    (fact_tables.Code('a|`b`'),),
    ('two\nlines',),
    (fact_tables.Code(''),),
  ]
  lines = model_card.as_markdown(fact_tables.Table(('a',), rows)).splitlines()
  assert lines == [
    '| a |',
    '| --- |',
    r'| \<b\>\*x\*\|\[y\] |',
    r'| `` a\|`b` `` |',
    '| two lines |',
    '|  |',
  ]


def test_converted_weights_claim_no_training(scored):
  facts = run_facts.read_facts(scored)
  assert 'was trained' in card_of(scored)
  text = model_card.card_text(
    facts._replace(record={**facts.record, 'weights_of_steps': [2]})
  )
  assert 'was trained by' not in text and '**To fill in:** how it was trained' in text
  assert 'steps of the training' not in text


@pytest.mark.parametrize('license', ['', 'cc-by-4.0'])
def test_unknown_facts_are_left_to_fill_in(scored, license):
  text = card_of(scored, license)
  holes = re.findall(r'\*\*To fill in:\*\* (.*)', text)
  assert len(holes) == (3 if license else 4)
  assert any('license the model' in hole for hole in holes) == (not license)
  assert metadata_of(text)['license'] == (license or 'unknown')


def test_a_run_without_scores_says_so_and_how_to_score_it(scored):
  shutil.rmtree(scored / 'eval')
  text = card_of(scored)
  assert 'Not scored yet' in text and 'eval.py --workdir=RUN' in text
  assert not {'metrics', 'model-index'} & metadata_of(text).keys()
  page = report.report_text(run_facts.read_facts(scored), None, 2)
  assert 'Not scored yet' in page and 'eval.py --workdir=RUN' in page


def test_scores_of_other_checkpoints_are_only_in_the_report(scored):
  path, result = result_of(scored)
  other = {
    **result,
    'steps': [1],
    'metrics': [{**result['metrics'][0], 'score': 77.125}],
  }
  assert result['steps'] != [1]
  path.with_name('test.step1.beam2.alpha0.6.json').write_text(json.dumps(other))
  ensemble = {**result, 'ensemble': ['RUN_B'], 'ensemble_steps': [[1]]}
  path.with_name('test.step2.ensemble2.json').write_text(json.dumps(ensemble))
  text = card_of(scored)
  (model,) = metadata_of(text)['model-index']
  assert len(model['results']) == 1 and '77.1' not in text and 'ensemble2' not in text
  page = report.report_text(run_facts.read_facts(scored), None, 0)
  assert '77.12' in page and 'ensemble2' in page


@pytest.mark.long
def test_an_edited_card_is_kept_unless_it_is_to_be_overwritten(card, scored):
  status, out, err = card(scored)
  assert (status, out) == (
    0,
    f'wrote {scored}/README.md\nwrote {scored}/report.html\n',
  ), err
  path = scored / 'README.md'
  first = path.read_text('utf-8')
  path.write_text(first.replace('unknown', 'mit'), 'utf-8')
  status, out, err = card(scored)
  assert (status, out) == (0, f'wrote {scored}/report.html\n'), err
  assert f'{path} exists' in err and '--overwrite' in err
  assert path.read_text('utf-8') == first.replace('unknown', 'mit')
  assert card(scored, '--overwrite')[0] == 0
  assert path.read_text('utf-8') == first


@pytest.mark.long
def test_a_run_whose_checkpoints_are_gone_has_a_card_in_another_folder(
  card, scored, tmp_path
):
  shutil.rmtree(scored / 'checkpoints')
  folder = tmp_path / 'new' / 'folder'
  status, _, err = card(scored, f'--output={folder}')
  assert status == 0 and 'there is no checkpoint to load' in err
  assert {path.name for path in folder.iterdir()} == {'README.md', 'report.html'}
  assert 'BLEU' in (folder / 'README.md').read_text('utf-8')
  assert 'no attention' in (folder / 'report.html').read_text('utf-8')
  assert not (scored / 'README.md').exists()


@pytest.mark.parametrize(
  ('arguments', 'fact'),
  [
    ([], 'pass one run: python'),
    (['{run}', '{run}'], 'pass one run: python'),
    (['{run}/none'], '{run}/none holds no run'),
    (['{run}/eval'], '{run}/eval holds no run'),
    (['{run}', '--examples=-1'], '--examples must be at least 0; got -1'),
    (['{run}', '--license=My own'], '--license must be a Hugging Face license ID'),
    (['{run}', '--output={run}/config.json'], '{run}/config.json is a file'),
  ],
)
def test_user_error_is_a_one_line_message_and_writes_nothing(
  card, scored, arguments, fact
):
  message = card.rejects(*(argument.format(run=scored) for argument in arguments))
  assert fact.format(run=scored) in message, message
  assert not (scored / 'README.md').exists()


@pytest.mark.parametrize('content', ['{"text": ', '[1]', '\udcff'])
def test_a_damaged_result_is_named(card, scored, content):
  path = scored / 'eval' / 'test.step9.json'
  path.write_bytes(content.encode('utf-8', 'surrogateescape'))
  message = card.rejects(scored)
  assert str(path) in message and 'score the run again' in message
