"""The plot of runs shows their metrics."""

import json
import math
import os
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from transformer.tools.plot import curves

SVG = '{http://www.w3.org/2000/svg}'


@pytest.fixture(scope='module')
def plot(start_command):
  yield from start_command('transformer.tools.plot.__main__', takes_arguments=True)


def write_lines(workdir, *rows):
  workdir.mkdir(exist_ok=True)
  (workdir / 'metrics.jsonl').write_text(
    ''.join(f'{json.dumps(row)}\n' for row in rows)
  )
  return workdir


def drawn(path):
  """Returns the lines of a picture, [points, 2] in pixels with y downwards, by run and metric."""
  lines = {}
  for group in ElementTree.parse(path).iter(f'{SVG}g'):
    number, _, metric = group.get('id', '').partition('/')
    if metric and number.isdecimal():
      line = (
        group.find(f'{SVG}path')
        .get('d', '')
        .replace('M', ' ')
        .replace('L', ' ')
        .split()
      )
      lines[int(number), metric] = np.array(line, float).reshape(-1, 2)
  return lines


def is_on_a_line(pixels, values):
  """Returns whether pixels are a · value + b, within the precision of an SVG."""
  a, b = np.polyfit(values, pixels, 1)
  assert a
  return np.abs(a * np.asarray(values) + b - pixels).max() < 1e-3


def test_the_points_of_the_curves_match_the_metrics(tmp_path):
  rows = [
    {
      'step': 3 * n,
      'train/loss': 9.0 - n**2 / 32,
      'train/learning_rate': math.sin(n),
      'train/perplexity': math.exp(4.0 - n**2 / 300),
      'tokens_per_second': 1e4 + n**2,
      'train/fill': 0.5,
    }
    for n in range(1, 31)
  ]
  rows[10:10] = [
    {
      'step': 31,
      'valid/loss': 3.25,
      'valid/bleu': 7.0,
      'valid/chrf': 9.0,
      'valid/loss_rank': 5.0,
      'valid/a/talks/bleu': 3.0,
      'valid/a/talks/comet': 0.5,
    }
  ]
  rows += [
    {
      'step': 92 + n,
      'valid/loss': 2.5 - n,
      'valid/perplexity': math.exp(2.5 - n),
      'valid/bleu': 11.0 - n,
      'valid/chrf': 13.0 - n,
      'valid/loss_rank': 7.0 - n,
      'valid/a/talks/perplexity': math.exp(3.0 - n),
      'valid/a/talks/bleu': 1.0 * n,
      'valid/a/talks/comet': 0.25 * n,
    }
    for n in (1, 3)
  ]
  write_lines(tmp_path, *rows)
  with (tmp_path / 'metrics.jsonl').open('ab') as file:
    file.write(b'{"step": 2, "train/lo')  # It is being written.
  curves.plot_runs([tmp_path], tmp_path / 'curves.svg')
  lines = drawn(tmp_path / 'curves.svg')
  assert {metric for _, metric in lines} == {
    'train/nll',
    'valid/loss',
    'valid/bleu',
    'valid/chrf',
    'valid/loss_rank',
    'valid/a/talks/bleu',
    'valid/a/talks/comet',
    'train/learning_rate',
    'tokens_per_second',
  }
  for row in rows:  # The validation loss is not smoothed, and train/loss is.
    if 'train/perplexity' in row:
      row['train/nll'] = math.log(row['train/perplexity'])
  for (_, metric), pixels in lines.items():
    points = [(row['step'], row[metric]) for row in rows if metric in row]
    assert curves.read_points(tmp_path)[metric] == tuple(
      map(list, zip(*points, strict=True))
    )
    for pixel, value in zip(pixels.T, zip(*points, strict=True), strict=True):
      assert is_on_a_line(pixel, value), metric


def test_further_sums_of_an_objective_have_curves(tmp_path):
  known = {
    'train/loss': 1.0,
    'train/perplexity': 2.0,
    'train/fill': 0.5,
    'train/data_wait': 0.1,
    'train/gradient_norm': 3.0,
    'train/skipped': 0,
    'train/skipped_in_a_row': 0,
  }
  rows = [
    {'step': step, **known, 'train/hard': 1.0 * step, 'train/web/nll': 2.0 - step}
    for step in (1, 2, 3)
  ]
  runs = [
    write_lines(tmp_path / 'plain', {'step': 1, **known}),
    write_lines(tmp_path / 'focal', *rows),
  ]
  curves.plot_runs(runs, tmp_path / 'curves.svg')
  lines = drawn(tmp_path / 'curves.svg')
  assert set(lines) == {
    (0, 'train/nll'),
    (1, 'train/nll'),
    (1, 'train/hard'),
    (1, 'train/web/nll'),
  }
  for name in ('train/hard', 'train/web/nll'):
    assert is_on_a_line(lines[1, name][:, 1], [row[name] for row in rows])


@pytest.mark.parametrize('rows', [[], [{'step': 4, 'train/loss': None}]])
def test_a_run_without_numbers_is_plotted(tmp_path, monkeypatch, rows):
  # Of other tests.
  monkeypatch.delitem(sys.modules, 'matplotlib.pyplot', raising=False)
  write_lines(tmp_path, *rows)
  for suffix, content in (('svg', b'<?xml'), ('png', b'\x89PNG'), ('pdf', b'%PDF')):
    curves.plot_runs([tmp_path], tmp_path / f'curves.{suffix}')
    assert (tmp_path / f'curves.{suffix}').read_bytes().startswith(content)
  assert 'matplotlib.pyplot' not in sys.modules  # It looks for a screen.


def test_several_runs_share_axes(plot, tmp_path):
  runs = [
    write_lines(
      tmp_path / name,
      {'step': 1, 'train/perplexity': math.exp(1.0 + number)},
      {'step': 2, 'train/perplexity': math.exp(2.0 + number)},
    )
    for number, name in enumerate(['a', '$b$^', 'x&<y', '中'])
  ]
  assert plot(runs[0])[0] == 0 and (runs[0] / 'curves.svg').exists()
  status, out, err = plot(*runs, f'--output={tmp_path}/new/all.svg')
  assert status == 0 and out.startswith(f'{tmp_path}/new/all.svg has the curves of'), (
    err
  )
  heights = [pixels[0, 1] for pixels in drawn(tmp_path / 'new' / 'all.svg').values()]
  assert heights == sorted(heights, reverse=True) and len(set(heights)) == 4
  texts = [
    group.text
    for group in ElementTree.parse(tmp_path / 'new' / 'all.svg').iter(f'{SVG}text')
  ]
  assert {f'{run}: train' for run in runs} < set(texts)
  assert any('without label smoothing' in text for text in texts if text)


@pytest.mark.parametrize('line', [b'[]', b'{"train/loss": 1.0}', b'\xff\x00', b''])
def test_a_damaged_line_is_skipped(tmp_path, line):
  write_lines(tmp_path, {'step': 1, 'train/loss': 1.0})
  with (tmp_path / 'metrics.jsonl').open('ab') as file:
    file.write(line + b'\n{"step": 2, "train/loss": 3.0}\n')
  assert curves.read_points(tmp_path) == {'train/loss': ([1, 2], [1.0, 3.0])}


@pytest.mark.parametrize(
  ('arguments', 'fact'),
  [
    ([], 'no run; pass'),
    (['{run}', '{run}'], '--output is missing; pass --output=FILE'),
    (
      ['{run}', '--output=x.gif'],
      "--output must end in one of .svg, .png, .pdf; got 'x.gif'",
    ),
    (['{run}/no'], '{run}/no/metrics.jsonl is missing'),
    (
      ['{run}', '--output={run}/linked.svg'],
      '--output={run}/linked.svg would overwrite',
    ),
  ],
)
def test_user_error_is_a_one_line_message(plot, tmp_path, arguments, fact):
  run = write_lines(tmp_path / 'run')
  os.link(run / 'metrics.jsonl', run / 'linked.svg')
  message = plot.rejects(*(argument.format(run=run) for argument in arguments))
  assert fact.format(run=run) in message, message
