"""The model card of a run: README.md in Markdown, with Hugging Face's metadata."""

import re
from collections.abc import Sequence

from transformer.errors import UserError
from transformer.runs.run_directory import WEIGHTS_ONLY
from transformer.tools.card.fact_tables import (
  Code,
  Table,
  data_table,
  evaluation_table,
  score_table,
  training_table,
)
from transformer.tools.card.metadata import front_matter
from transformer.tools.card.run_facts import RunFacts

CARD = 'README.md'
REPORT = 'report.html'
_INTERVALS = (
  'Intervals are 95% confidence intervals from bootstrap resampling over sentences.'
)
_NOT_SCORED = """Not scored yet. Score the run, then create the card again:

```sh
python eval.py --workdir=RUN
python -m transformer.tools.card RUN --overwrite
```"""
_EXPORT_NOT_SCORED = """Not scored yet. Score the same checkpoints of the run, then export again:

```sh
python eval.py --workdir=RUN --checkpoint={step} --average={number}
```"""
_CONVERTED = (
  'Its weights were converted from another format, and the commit, the command and the machine '
  'below describe the conversion. **To fill in:** how it was trained.'
)
USE = """With the directory of the run as RUN:

```sh
python eval.py --workdir=RUN --source=FILE --output=FILE2
```

```python
import transformer

run = transformer.load('RUN')
print(run.translate(['A sentence.']))
```"""
_USE_IN_TRANSFORMERS = """After `pip install transformers torch sentencepiece`, with this folder or
its name on the hub as MODEL:

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model = AutoModelForSeq2SeqLM.from_pretrained('MODEL')
tokenizer = AutoTokenizer.from_pretrained('MODEL')
source = tokenizer(['A sentence.'], return_tensors='pt', padding=True)
print(tokenizer.batch_decode(model.generate(**source), skip_special_tokens=True)[0])
```"""


def card_text(facts: RunFacts, license: str = '') -> str:
  """Returns the card of a run in Markdown.

  Facts that the run does not know are marked to fill in.

  Args:
    license: an id of the hub; '' leaves a line to fill in.
  """
  data = facts.config.data
  record = facts.record
  architecture = facts.config.model.module or 'encoder-decoder Transformer'
  if not isinstance(architecture, str):
    architecture = str(architecture[0])  # Its settings follow.
  direction = f'from `{data.source_language}` into `{data.target_language}`'
  trained = (
    f'It was trained by attention-is-all-you-need-jax at commit `{record["commit"]}`.'
  )
  if WEIGHTS_ONLY in record:
    trained = _CONVERTED
  license_text = license or _to_fill_in('under which license the model may be used')
  scores = facts.scores_of_steps
  sections = [
    f'# {_escaped(facts.name)}',
    f'This model ({_escaped(architecture)}) translates {direction}. {trained} In the directory of '
    f'the run, `{REPORT}` has curves, examples with attention, and the settings.',
    '## Intended use',
    f'Translation of single sentences {direction}, of text like the [training data](#data).',
    _to_fill_in('who the model is for, and what it should not be used for'),
    use(facts),
    '## Scores',
    _scores(facts),
    '## Data',
    _origin_of_data(facts),
    as_markdown(data_table(facts)),
    _to_fill_in('where the data come from, and under which license'),
    '## Training',
    as_markdown(training_table(facts)),
    '## Limits',
    _limits(facts),
    _to_fill_in('known errors and biases; no run measures them'),
    '## License',
    license_text,
  ]
  if scores:
    sections += [
      '## How the scores were computed',
      as_markdown(evaluation_table(scores)),
    ]
  return front_matter(facts, license) + '\n' + '\n\n'.join(sections) + '\n\n'


def use(facts: RunFacts) -> str:
  """Returns how to translate with the model."""
  return _USE_IN_TRANSFORMERS if facts.export == 'huggingface' else USE


def check_license(license: str):
  """Raises `UserError` if a license cannot be an id of the hub."""
  if not re.fullmatch(r'[a-z0-9][a-z0-9.-]*', license):
    raise UserError(
      f'--license must be a Hugging Face license ID, such as mit or cc-by-4.0; got {license!r}'
    )


def as_markdown(table: Table) -> str:
  """Returns a table in Markdown."""
  lines = [_row(table.head), _row(['---'] * len(table.head))]
  for row in table.rows:
    lines.append(_row([_cell(cell) for cell in row]))
  return '\n'.join(lines)


def _scores(facts: RunFacts) -> str:
  """Returns the table of scores, or instructions for scoring the run."""
  scores = facts.scores_of_steps
  if not scores and facts.export:
    return _EXPORT_NOT_SCORED.format(step=facts.steps[-1], number=len(facts.steps))
  if not scores:
    return _NOT_SCORED
  table = as_markdown(score_table(scores))
  return f'{table}\n\n{_INTERVALS}'


def _origin_of_data(facts: RunFacts) -> str:
  data = facts.config.data
  source = f'TensorFlow Datasets, `{data.tfds_name}`'
  if data.source != 'tfds':
    source = f'`data.source={data.source}`'
  return f'{source}. The digests are of the text that was read.'


def _limits(facts: RunFacts) -> str:
  """Returns a list of the limitations that follow from settings and scores."""
  data = facts.config.data
  extra = facts.config.decode.max_extra_length
  lines = [
    f'A source is truncated to {data.max_length} tokens, EOS included.',
    f'A translation has at most {extra} tokens more than its source.',
    'Each line is translated without the lines around it.',
  ]
  for result in facts.scores_of_steps:
    content = result.content
    text = content['text']
    if content['truncated_sources']:
      count = f'{content["truncated_sources"]:,} of {content["sentences"]:,} sources'
      lines.append(f'{count} of {text} were truncated ({result.name}).')
    for reason in content.get('failed_metrics', ()):
      lines.append(f'{text}, {result.name}: {_escaped(reason)}.')
  return '\n'.join(f'- {line}' for line in lines)


def _to_fill_in(fact: str) -> str:
  """Returns a line that asks the user for a fact."""
  return f'**To fill in:** {fact}.'


def _row(cells: Sequence[str]) -> str:
  return f'| {" | ".join(cells)} |'


def _cell(cell: str) -> str:
  """Returns the Markdown of a cell; `|` would end it, also in code."""
  line = ' '.join(cell.split())
  if isinstance(cell, Code) and line:
    fence = '`' * (1 + max(map(len, re.findall('`+', line)), default=0))
    space = ' ' if '`' in line else ''
    line = f'{fence}{space}{line}{space}{fence}'
    return line.replace('|', r'\|')
  return _escaped(line)


def _escaped(line: str) -> str:
  """Returns a text with Markdown's special characters escaped."""
  return re.sub(r'([\\`*_\[\]<>|#])', r'\\\1', line)
