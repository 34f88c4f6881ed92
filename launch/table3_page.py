"""The page of table 3: the figures of each row beside the paper's."""

from collections.abc import Mapping
from typing import Any

_PREFACE = """# Table 3 of the paper, row by row

Perplexity is per word piece, without smoothing. BLEU is computed by sacreBLEU for the last
checkpoint on the validation split. The paper's columns are for newstest2013, after 100,000 updates
(`big`: 300,000) on WMT 2014 English to German. With other data or another scale, compare a row with
the other rows, and not with the paper's figures. A scale of 1/4 means that model_dim, ff_dim,
key_dim and value_dim are a quarter of the paper's. If the base row has fewer layers than the
paper's 6, rows C1 to C3 have fewer in proportion.

"""
_COLUMNS = (
  'row',
  'differs from base by',
  'scale',
  'steps',
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


def page(results: Mapping[str, Any]) -> str:
  """Returns the page with a table of the rows that are done, by name."""
  lines = [_COLUMNS, ('---',) * len(_COLUMNS)]
  for name, row in results.items():
    settings = row['settings']
    paper = row['paper']
    data = row['data']
    otherwise = (
      f'{settings["model.num_layers"]} layers, {settings["model.norm"]}-norm, '
      f'schedule {settings["optimizer.schedule"]}, '
      f'{settings["train.tokens_per_batch"]:,} tokens a batch, vocabulary '
      f'{settings["data.vocabulary_size"]:,}'
    )
    # JSON has no infinity, which a perplexity may be.
    perplexity = 'infinite' if row['perplexity'] is None else f'{row["perplexity"]:.2f}'
    prints = ', '.join(
      f'{what} {digest[:8]}'
      for what, digest in data['fingerprints'].items()
      if what != 'vocabulary'
    )
    lines.append(
      (
        name,
        differences(row['differs']),
        '1' if row['scale'] == 1 else f'1/{row["scale"]}',
        f'{row["steps"]:,}',
        perplexity,
        f'{paper["perplexity"]:.2f}',
        f'{row["bleu"]:.2f}',
        f'{paper["bleu"]:.1f}',
        f'{row["parameters"]:,}',
        str(paper['millions'] or ''),
        otherwise,
        f'{data["name"]}, {" to ".join(data["languages"])}, {prints}',
        row['commit'][:7],
      )
    )
  return _PREFACE + ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def differences(differs: Mapping[str, Any]) -> str:
  """Returns settings as text, their names without the groups."""
  return ', '.join(
    f'{name.partition(".")[2]} {value}' for name, value in differs.items()
  )
