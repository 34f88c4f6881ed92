"""Lays out the report of an audit for people."""

import textwrap
from collections.abc import Mapping
from typing import Any

from transformer.data.audit.characters import shown

_WIDTH = 44  # characters of a sentence that an example shows
_COLUMNS = 100
_INDENT = 23  # column of the name of a finding
_EXAMPLE = 8  # column of an example
_HEADER = ('  language  tokens of a sentence: median   99 %    most   tokens that are bytes   '
           'letters')
# What training and scoring do with the pairs of a finding, by the start of its name.
_IN_TRAINING = (
    ('a side is empty', 'training drops the empty ones'),
    ('a side has more than data.max_length', 'training drops them'),
    ('a side has more than', 'data.max_length_ratio drops them'),
    ('source equals target', 'data.drop_identical drops them, with a shared vocabulary'),
    ('a pair repeats an earlier one', 'data.drop_duplicates drops them, within a corpus'))
_IN_SCORING = (('a side has more than data.max_length', 'such sources are cut'),)


def as_table(report: Mapping[str, Any]) -> str:
  """Returns a report of `look_over` as lines of text; escapes invisible characters."""
  lines = []
  for name, about in report['corpora'].items():
    lines += [*_corpus(name, about), '']
  lines += ['all training text: repeated', *_findings(report['training']['findings'],
                                                      report['training']['pairs'], _IN_TRAINING),
            '']
  for name, findings in report['overlap'].items():
    lines += [f'{name}: overlap with training',
              *_findings(findings, report['corpora'][name]['pairs']), '']
  vocabulary = report['vocabulary']
  if 'error' in vocabulary:
    lines.append(f'vocabulary: none, {vocabulary["error"]}')
  else:
    each_side = vocabulary if 'source' in vocabulary else {'': vocabulary}
    lines += [f'{f"{side} vocabulary".lstrip()}: {about["size"]:,} pieces, from {about["from"]}'
              for side, about in each_side.items()]
  lines.append(f'{report["seconds"]:.1f} s, at most {report["memory_mib"]:,} MiB of memory')
  return '\n'.join(lines) + '\n'


def in_brief(report: Mapping[str, Any]) -> list[str]:
  """Returns the findings of a report in a line for each corpus with findings."""
  parts = [*((name, about['findings'], about['pairs'])
             for name, about in report['corpora'].items() if 'error' not in about),
           ('all training text', report['training']['findings'], report['training']['pairs']),
           *((f'{name}, overlap with training', findings, report['corpora'][name]['pairs'])
             for name, findings in report['overlap'].items())]
  lines = []
  for name, findings, pairs in parts:
    found = [f'{finding["what"]}: {finding["count"]:,} ({_share(finding["count"], pairs)})'
             for finding in findings if finding['count']]
    if found:
      lines.append(f'{name}: {"; ".join(found)}')
  return lines


def _corpus(name, about):
  """Returns the lines about one corpus: its files, its two sides and its findings."""
  if 'error' in about:
    return [f'{name}: cannot be used: {about["error"]}']
  source, target = (side['language'] for side in about['sides'])
  lines = [f'{name}: {about["corpus"]}, {about["pairs"]:,} pairs']
  if not about['aligned']:
    counts = '{:,} and {:,}'.format(*about['lines'])
    lines.append(f'  NOT ALIGNED: {counts} lines of {source} and {target}; train.py refuses such '
                 f'files; the rest is about the first {about["pairs"]:,} lines of both')
  lines += [f'  {note}' for note in about['notes']]
  if about['pairs']:
    lines.append(_HEADER)
    lines += [_side(side) for side in about['sides']]
    lines += _findings(about['findings'], about['pairs'],
                       _IN_TRAINING if name.startswith('train/') else _IN_SCORING)
  return lines


def _side(side):
  lengths = '{:>31,} {:>6,} {:>7,}'.format(*side['lengths']) if side['lengths'] else ' ' * 46
  in_bytes = _share(side['byte_tokens'], side['tokens']) if side['tokens'] else ''
  scripts = ', '.join(f'{_share(number, side["letters"])} {name.capitalize()}'
                      for name, number in list(side['scripts'].items())[:3])
  return f'  {side["language"]:<8}{lengths}   {in_bytes:>21}   {scripts}'.rstrip()


def _findings(findings, pairs, fates=()):
  """Returns lines about each finding and its examples, then about findings without a pair."""
  lines = []
  for finding in findings:
    if not finding['count']:
      continue
    fate = next((fate for start, fate in fates if finding['what'].startswith(start)), '')
    lines.append(f'  {finding["count"]:>9,} {_share(finding["count"], pairs):>9}  '
                 f'{finding["what"]}{fate and f" ({fate})"}')
    for example in finding['examples']:
      note = example['note'] and f' ({example["note"]})'
      text = ' | '.join(shown(example[side], _WIDTH) for side in ('source', 'target'))
      lines.append(f'{"":{_EXAMPLE}}line {example["line"]}{note}: {text}')
  nothing = [finding['what'] for finding in findings if not finding['count']]
  if nothing:
    lines += textwrap.wrap('; '.join(nothing), _COLUMNS, initial_indent=f'  {0:>9,}{"":12}',
                           subsequent_indent=' ' * _INDENT)
  return lines


def _share(part, whole) -> str:
  """Returns a share in per cent; only nothing is 0 %, and only everything is 100 %."""
  if not part or not whole:
    return '0 %'
  share = 100 * part / whole
  if share < 0.01:
    return '< 0.01 %'
  return '> 99.99 %' if 99.99 < share < 100 else f'{share:.2f} %'
