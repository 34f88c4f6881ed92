"""The page and the LaTeX, Markdown or CSV table of table 3: our results next to the paper's."""

from collections.abc import Mapping, Sequence
from typing import Any

from launch import tables

_PREFACE = """# Table 3 of the paper, row by row

Perplexity is per word piece, without smoothing. BLEU is computed by sacreBLEU for the last
checkpoint on the validation split. The paper's columns are for newstest2013, after 100,000 steps
(`big`: 300,000) on WMT 2014 English to German. With other data or another scale, compare a row with
the other rows, not with the paper's results. A scale of 1/4 means that model_dim, ff_dim,
key_dim and value_dim are a quarter of the paper's. If the base row has fewer layers than the
paper's 6, rows C1 to C3 have fewer in proportion. With several seeds, scores are
mean ± standard deviation.

"""
_COLUMNS = (
  'row',
  'differs from base by',
  'scale',
  'steps',
  'seeds',
  'PPL',
  'paper',
  'BLEU',
  'paper',
  'parameters',
  'paper, millions',
  'otherwise',
  'data',
  'commit',
)


def page(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
  """Returns the page with a table of the finished rows.

  `results` has one result per seed, by row name.
  """
  rows = [_COLUMNS]
  for name, seeds in results.items():
    row = seeds[0]
    settings = row['settings']
    paper = row['paper']
    data = row['data']
    otherwise = (
      f'{settings["model.num_layers"]} layers, {settings["model.norm_position"]}-norm, schedule '
      f'{settings["optimizer.schedule"]}, {settings["train.tokens_per_batch"]:,} tokens per '
      f'batch, vocabulary {settings["data.vocabulary_size"]:,}'
    )
    prints = ', '.join(
      f'{key} {digest[:8]}'
      for key, digest in data['fingerprints'].items()
      if key != 'vocabulary'
    )
    rows.append(
      (
        name,
        differences(row['differs']),
        '1' if row['scale'] == 1 else f'1/{row["scale"]}',
        f'{row["steps"]:,}',
        str(len(seeds)),
        *_over_seeds(seeds, 'perplexity', 'markdown'),
        f'{paper["perplexity"]:.2f}',
        *_over_seeds(seeds, 'bleu', 'markdown'),
        f'{paper["bleu"]:.1f}',
        f'{row["parameters"]:,}',
        str(paper['millions'] or ''),
        otherwise,
        f'{data["name"]}, {" to ".join(data["languages"])}, {prints}',
        row['commit'][:7],
      )
    )
  return f'{_PREFACE}{tables.format_table(rows, "markdown")}\n'


def table(results: Mapping[str, Sequence[Mapping[str, Any]]], style: str) -> str:
  """Returns the finished rows as a table in one of `tables.FORMATS`.

  `results` has one result per seed, by row name.
  """
  head = [
    'row',
    'differs from base by',
    'parameters',
    'seeds',
    *tables.column_titles('PPL', style),
    'PPL (paper)',
    *tables.column_titles('BLEU', style),
    'BLEU (paper)',
  ]
  rows = [head]
  for name, seeds in results.items():
    row = seeds[0]
    parameters = row['parameters']
    cells = [
      name,
      differences(row['differs']),
      parameters if style == 'csv' else f'{parameters:,}',
      len(seeds),
      *_over_seeds(seeds, 'perplexity', style),
      f'{row["paper"]["perplexity"]:.2f}',
      *_over_seeds(seeds, 'bleu', style),
      f'{row["paper"]["bleu"]:.1f}',
    ]
    rows.append(cells)
  return tables.format_table(rows, style)


def _over_seeds(
  seeds: Sequence[Mapping[str, Any]], metric: str, style: str
) -> list[Any]:
  """Returns the cells of a metric over seeds; its JSON is null if it is infinite."""
  values = [row[metric] for row in seeds]
  if None in values:
    return ['infinite', None] if style == 'csv' else ['infinite']
  return tables.over_seeds(values, style, '.2f')


def differences(differs: Mapping[str, Any]) -> str:
  """Returns settings as text, without the names of their groups."""
  return ', '.join(
    f'{name.partition(".")[2]} {value}' for name, value in differs.items()
  )
