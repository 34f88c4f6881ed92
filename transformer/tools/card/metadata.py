"""The metadata of a card, in YAML, as Hugging Face's hub reads it."""

import re
from typing import Any

import yaml

from transformer.evaluation.results import Result
from transformer.tools.card.run_facts import RunFacts

# The hub's names of metrics.
_METRICS = {'BLEU': 'bleu', 'chrF2++': 'chrf'}
# The hub has this id for a licence that is not known.
_UNKNOWN_LICENCE = (
  'license: unknown  # To fill in: an id such as mit, see '
  'https://huggingface.co/docs/hub/repositories-licenses\n'
)


def front_matter(facts: RunFacts, licence: str) -> str:
  """Returns the YAML between two lines of `---`, with which a card begins.

  `licence` is an id of the hub; empty leaves a line to fill in.
  """
  metadata = hub_metadata(facts)
  line = _UNKNOWN_LICENCE
  if licence:
    line = yaml.safe_dump({'license': licence})  # It quotes an id such as `no`.
  text = yaml.safe_dump(metadata, allow_unicode=True, sort_keys=False)
  return f'---\n{line}{text}---\n'


def hub_metadata(facts: RunFacts) -> dict[str, Any]:
  """Returns all metadata but the licence.

  The scores are those of the model of the card, so that no checkpoint is chosen by a test score.
  """
  languages = language_codes(facts)
  scores = facts.scores_of_steps
  task = 'translation' if len(languages) == 2 else 'text2text-generation'
  metadata: dict[str, Any] = {}
  if languages:
    metadata['language'] = languages
  metadata['tags'] = [task, 'transformer', 'jax', 'flax']
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
  """Returns the ISO 639 codes of both languages; without names such as `trees`."""
  data = facts.config.data
  codes = []
  for language in (data.source_language, data.target_language):
    code = re.split('[-_]', language.lower())[0]
    if re.fullmatch('[a-z]{2,3}', code) and code not in codes:
      codes.append(code)
  return codes


def _hub_result(result: Result, task: str, facts: RunFacts) -> dict[str, Any]:
  """Returns a result in the form of the hub's `model-index`."""
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
      'type': 'to-fill-in',  # The hub's id of the data, which a run does not know.
      'split': content['text'],
      'args': {'sha256': content['text_sha256']},
    },
    'metrics': metrics,
  }


def _hub_name(metric: str) -> str:
  return _METRICS.get(metric, metric.lower())
