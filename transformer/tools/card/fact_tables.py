"""Facts of a run as tables of text, for the card and the report."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from transformer.config import Config, flatten
from transformer.evaluation.results import Result
from transformer.runs.run_directory import CHECKPOINTS, WEIGHTS_ONLY
from transformer.runs.sealing import digest_of
from transformer.tools.card.cost import cost_of
from transformer.tools.card.run_facts import RunFacts

NOT_RECORDED = 'not recorded'


class Code(str):
  """A cell that is shown as code, such as a digest."""


class Table(NamedTuple):
  """The names of columns, and rows with one cell per column."""

  head: Sequence[str]
  rows: Sequence[Sequence[str]]


def score_table(scores: Iterable[Result]) -> Table:
  """Returns every score with its 95% interval and its signature."""
  rows = []
  for result in scores:
    content = result.content
    text = f'{content["text"]}, {content["sentences"]:,} sentences'
    for metric in content['metrics']:
      interval = ''
      if metric.get('interval_95'):
        low, high = metric['interval_95']
        interval = f'{low:.2f} … {high:.2f}'
      score = f'{metric["score"]:.2f}'
      signature = Code(metric['signature'])
      rows.append((text, result.name, metric['name'], score, interval, signature))
  head = 'text', 'decoding', 'metric', 'score', '95% interval', 'signature'
  return Table(head, rows)


def evaluation_table(scores: Iterable[Result]) -> Table:
  """Returns the checkpoint, commit, versions and text of each result."""
  rows = []
  for result in scores:
    content = result.content
    name = f'{content["text"]}.{result.name}'
    checkpoint = _digests(content['checkpoints_sha256'])
    commit = Code(content['commit'])
    text = Code(content['text_sha256'])
    rows.append((name, checkpoint, commit, _versions(content), text))
  head = (
    'result',
    'SHA-256 of the checkpoint',
    'commit',
    'versions',
    'SHA-256 of the text',
  )
  return Table(head, rows)


def data_table(facts: RunFacts) -> Table:
  """Returns the digest of each vocabulary and corpus, with its number of pairs."""
  counts = facts.record.get('counts', {})
  rows = []
  for name, digest in facts.record.get('data', {}).items():
    pairs = []
    for kind, count in counts.get(name, {}).items():
      if count:
        pairs.append(f'{kind} {count:,}')
    rows.append((name, '; '.join(pairs), Code(digest)))
  return Table(('corpus', 'sentence pairs', 'SHA-256'), rows)


def training_table(facts: RunFacts) -> Table:
  """Returns the size, cost, machine and command of training."""
  record = facts.record
  steps = ', '.join(map(str, facts.steps)) or 'no checkpoint'
  checkpoints = facts.workdir / CHECKPOINTS
  digests = [digest_of(checkpoints / str(step)) for step in facts.steps]
  devices = record['devices']
  machine = f'{devices["count"]} × {devices["kind"]}, {devices["cpu_cores"]} CPU cores'
  rows = [
    ('checkpoint', f'step {steps}'),
    ('parameters', f'{record["parameters"]:,}'),
    ('cost', cost_of(facts.workdir, record, facts.config) or NOT_RECORDED),
    ('SHA-256 of the checkpoint', _digests(digests)),
    ('machine', machine),
    ('commit', Code(record['commit'])),
    ('versions', _versions(record)),
    ('started', record['started']),
    ('command', Code(shlex.join(record['command']))),
  ]
  # Converted weights have default training settings, which are meaningless.
  if WEIGHTS_ONLY not in record:
    train = facts.config.train
    rows.append(('steps of the training', f'{train.steps:,}'))
    rows.append(('target positions in a batch', f'{train.tokens_per_batch:,}'))
  return Table(('fact', 'value'), rows)


def _digests(digests: Sequence[str | None]) -> Code:
  """Returns the digests of checkpoints; some checkpoints may be deleted."""
  return Code(' '.join(filter(None, digests)) or NOT_RECORDED)


def provenance_table(facts: RunFacts) -> Table:
  """Returns the plugins and switches that affect results, and each resume."""
  record = facts.record
  rows = []
  for name in ('plugins', 'origin', 'frozen', 'jax', 'xla_flags', 'reproducible'):
    if name in record:
      rows.append((name, Code(_json(record[name]))))
  for session in record['resumed']:
    rows.append((f'resumed {session["started"]}', Code(_json(session))))
  return Table(('run.json', 'value'), rows)


def settings_table(config: Config) -> Table:
  """Returns the settings that differ from the defaults of `Config`."""
  defaults = flatten(Config().to_dict())
  rows = []
  for name, value in flatten(config.to_dict()).items():
    default = defaults[name]
    if value != default:
      rows.append((Code(name), Code(repr(value)), Code(repr(default))))
  return Table(('setting', 'this run', 'default'), rows)


def _versions(content: Mapping[str, Any]) -> str:
  """Returns the versions of Python and packages as one line."""
  versions = [f'Python {content["python"]}']
  for name, version in content['packages'].items():
    versions.append(f'{name} {version}')
  return ', '.join(versions)


def _json(value: Any) -> str:
  return json.dumps(value, ensure_ascii=False)
