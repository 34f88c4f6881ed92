"""The metadata of a card, in YAML, for Hugging Face's hub."""

import re
from typing import Any

import yaml

from transformer.evaluation.results import Result
from transformer.tools.card.run_facts import RunFacts

# The hub's names of metrics.
_METRICS = {'BLEU': 'bleu', 'chrF2++': 'chrf'}
# Instead of the hub's id of the dataset, which a run does not know.
UNKNOWN_DATASET = 'to-fill-in'
# The hub's id for an unknown license.
_UNKNOWN_LICENSE = (
  'license: unknown  # To fill in: an id such as mit, see '
  'https://huggingface.co/docs/hub/repositories-licenses\n'
)


def front_matter(facts: RunFacts, license: str) -> str:
  """Returns the YAML front matter of a card, between two lines of `---`.

  `license` is an id of the hub; '' leaves a line to fill in.
  """
  metadata = hub_metadata(facts)
  line = _UNKNOWN_LICENSE
  if license:
    line = yaml.safe_dump({'license': license})  # Quotes an id such as `no`.
  text = yaml.safe_dump(metadata, allow_unicode=True, sort_keys=False)
  return f'---\n{line}{text}---\n'


def hub_metadata(facts: RunFacts) -> dict[str, Any]:
  """Returns all metadata except the license.

  The scores are only of the card's model, so that no checkpoint is selected by a test score.
  """
  languages = language_codes(facts)
  scores = facts.scores_of_steps
  task = 'translation' if len(languages) == 2 else 'text2text-generation'
  metadata: dict[str, Any] = {}
  if languages:
    metadata['language'] = languages
  metadata['tags'] = [task, 'transformer']
  if facts.export == 'huggingface':
    metadata['library_name'] = 'transformers'
  else:
    metadata['tags'] += ['jax', 'flax']
  metadata['pipeline_tag'] = task
  if scores:
    results = [_hub_result(result, task, facts) for result in scores]
    names = []
    for result in results:
      names += [metric['type'] for metric in result['metrics']]
    metadata['metrics'] = list(dict.fromkeys(names))
    metadata['model-index'] = [{'name': facts.name, 'results': results}]
  return metadata


def language_codes(facts: RunFacts) -> list[str]:
  """Returns the ISO 639 codes of both languages, without other names such as `trees`."""
  data = facts.config.data
  codes = []
  for language in (data.source_language, data.target_language):
    code = re.split('[-_]', language.lower())[0]
    if re.fullmatch('[a-z]{2,3}', code) and code not in codes:
      codes.append(code)
  return codes


def _hub_result(result: Result, task: str, facts: RunFacts) -> dict[str, Any]:
  """Returns a result in the format of the hub's `model-index`."""
  content = result.content
  data = facts.config.data
  name = f'{data.source_language}-{data.target_language}'
  metrics = []
  for metric in content['metrics']:
    args = {'signature': metric['signature'], 'decoding': result.name}
    if metric.get('interval_95'):
      args['interval_95'] = list(metric['interval_95'])
    metrics.append(
      {
        'type': _hub_name(metric['name']),
        'name': metric['name'],
        'value': metric['score'],
        'args': args,
      }
    )
  return {
    'task': {'type': task, 'name': name},
    'dataset': {
      'name': f'{content["text"]} of {facts.name}',
      'type': UNKNOWN_DATASET,
      'split': content['text'],
      'args': {'sha256': content['text_sha256']},
    },
    'metrics': metrics,
  }


def _hub_name(metric: str) -> str:
  return _METRICS.get(metric, metric.lower())
