"""The card of an export has only scores of the exported model, and keeps the user's edits."""

import json

import pytest
import yaml

from transformer.tools.card import model_card, run_facts
from transformer.tools.card.exported_card import copy_card


@pytest.fixture
def export(scored, tmp_path):
  """(steps, format) -> the metadata and the text of the card of an export."""

  def export(steps, format):
    folder = tmp_path / f'{format}{len(list(tmp_path.iterdir()))}'
    folder.mkdir()
    copy_card(scored, steps, folder, format, 'a model')
    text = (folder / 'README.md').read_text('utf-8')
    return yaml.safe_load(text.split('---\n')[1]), text

  return export


def scores_of(metadata):
  values = []
  for model in metadata.get('model-index', ()):
    for result in model['results']:
      values += [metric['value'] for metric in result['metrics']]
  return values


@pytest.mark.parametrize('has_card', [False, True])
def test_scores_are_of_the_exported_checkpoints_only(export, scored, has_card):
  (path,) = (path for path in (scored / 'eval').glob('test.*.json'))
  result = json.loads(path.read_bytes())
  other = {**result, 'steps': [1, 2]}
  other['metrics'] = [{**result['metrics'][0], 'score': 77.125}]
  path.with_name('test.average2.json').write_text(json.dumps(other))
  if has_card:
    facts = run_facts.read_facts(scored)._replace(steps=[2])
    text = model_card.card_text(facts, 'mit')
    text = text.replace('**To fill in:** who the model is for', 'For tests')
    text = text.replace('type: to-fill-in', 'type: my/data')
    (scored / 'README.md').write_text(text, 'utf-8')
  of_last = [metric['score'] for metric in result['metrics']]
  for steps, expected in (([2], of_last), ([1, 2], [77.125]), ([1], [])):
    for format in ('huggingface', 'ctranslate2'):
      metadata, text = export(steps, format)
      assert scores_of(metadata) == expected
      assert ('metrics' in metadata) == bool(expected)
      assert ('| test, 2 sentences' in text) == bool(expected)
      assert ('77.12' in text) == (steps == [1, 2])
      assert ('--checkpoint=1 --average=1' in text) == (steps == [1])
      assert text.count('## Scores') == text.count('## License') == 1
      if has_card:
        assert 'For tests' in text and metadata['license'] == 'mit'
        assert ('type: my/data' in text) == bool(expected)


@pytest.mark.parametrize('has_card', [False, True])
def test_a_card_for_the_hub_shows_the_classes_of_transformers(export, scored, has_card):
  if has_card:
    facts = run_facts.read_facts(scored)._replace(steps=[2])
    (scored / 'README.md').write_text(model_card.card_text(facts), 'utf-8')
  metadata, text = export([2], 'huggingface')
  assert metadata['library_name'] == 'transformers'
  assert not {'jax', 'flax'} & {*metadata['tags']}
  assert 'AutoModelForSeq2SeqLM' in text and 'import transformer\n' not in text
  metadata, text = export([2], 'ctranslate2')
  assert 'library_name' not in metadata
  assert 'AutoModelForSeq2SeqLM' not in text


def test_a_card_without_the_known_sections_is_copied(scored, tmp_path):
  (scored / 'README.md').write_bytes(b'my \xff card\n\n---\nmetrics: mine\n')
  copy_card(scored, [2], tmp_path, 'huggingface', 'a model')
  copied = (tmp_path / 'README.md').read_bytes()
  start = b'my \xff card\n\n---\nmetrics: mine\n\n## About this export\n\nA model. '
  assert copied.startswith(start)
