"""The curves of a run show its metrics, and a fault in drawing them does not end the run."""

import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from tests.tiny_training import NumberedBatches, Settings, make_task, train_tiny
from transformer.errors import UserError
from transformer.experiment.meter import WALL_CLOCK
from transformer.runs import curves

SVG = '{http://www.w3.org/2000/svg}'


def run(model, workdir, fatal=None, **changes):
  settings = Settings()
  settings = settings._replace(train=settings.train.__class__(
      **{**vars(settings.train), **changes}))
  train_tiny(settings, make_task(model, NumberedBatches(fatal), lambda params: 1.5), workdir)


def write_lines(workdir, *rows):
  workdir.mkdir(exist_ok=True)
  (workdir / 'metrics.jsonl').write_text(''.join(f'{json.dumps(row)}\n' for row in rows))
  return workdir


def drawn(path):
  """Returns the lines of a picture, [points, 2] in pixels with y downwards, by run and metric."""
  found = {}
  for group in ElementTree.parse(path).iter(f'{SVG}g'):
    number, _, metric = group.get('id', '').partition('/')
    if metric and number.isdecimal():
      found[int(number), metric] = pixels_of(group.find(f'{SVG}path'))
  return found


def pixels_of(path):
  """Returns the points of a line in a picture, [points, 2]."""
  line = path.get('d', '').replace('M', ' ').replace('L', ' ').split()
  return np.array(line, float).reshape(-1, 2)


def is_on_a_line(pixels, values):
  """Returns whether pixels are a · value + b, within the precision of an SVG."""
  a, b = np.polyfit(values, pixels, 1)
  assert a
  return np.abs(a * np.asarray(values) + b - pixels).max() < 1e-3


def texts(path):
  return [each.text for each in ElementTree.parse(path).iter(f'{SVG}text')]


def test_the_points_of_the_curves_are_those_of_the_metrics(tmp_path):
  # Points on a straight line must not be merged.
  rows = [{'step': 3 * n, 'train/loss': 9.0 - n / 32, 'train/learning_rate': math.sin(n),
           'tokens_per_second': 1e4 + n ** 2, 'train/fill': 0.5} for n in range(1, 211)]
  rows[100:100] = [{'step': 299, 'valid/loss': 3.25, 'valid/bleu': 7.0}]
  rows += [{'step': 630, 'valid/loss': 2.5, 'valid/bleu': 11.0},
           {'step': 631, 'valid/loss': 2.25, 'valid/bleu': 10.0}]
  write_lines(tmp_path, *rows)
  curves.draw([tmp_path], tmp_path / 'curves.svg')
  lines = drawn(tmp_path / 'curves.svg')
  assert {metric for _, metric in lines} == {'train/loss', 'valid/loss', 'valid/bleu',
                                             'train/learning_rate', 'tokens_per_second'}
  for (_, metric), pixels in lines.items():
    points = [(row['step'], row[metric]) for row in rows if metric in row]
    assert curves.read_points(tmp_path)[metric] == tuple(map(list, zip(*points, strict=True)))
    assert len(pixels) == len(points)
    for pixel, value in zip(pixels.T, zip(*points, strict=True), strict=True):
      assert is_on_a_line(pixel, value), metric
  assert np.polyfit([row['valid/bleu'] for row in rows if 'valid/bleu' in row],
                    lines[0, 'valid/bleu'][:, 1], 1)[0] < 0  # Better scores are higher up.


def test_further_validation_sets_are_drawn_by_name(tmp_path):
  write_lines(tmp_path, *({'step': n, 'train/loss': 5.0 - n, 'valid/loss': 6.0 - n,
                           'valid/bleu': 2.0 * n, 'valid/a/talks/loss': 7.0 - n,
                           'valid/a/talks/bleu': 1.0 * n} for n in (1, 2, 3)))
  curves.draw([tmp_path], tmp_path / 'curves.svg')
  assert {metric for _, metric in drawn(tmp_path / 'curves.svg')} == {
      'train/loss', 'valid/loss', 'valid/bleu', 'valid/a/talks/loss', 'valid/a/talks/bleu'}
  assert {'validation, a/talks', 'BLEU', 'BLEU, a/talks'} < set(texts(tmp_path / 'curves.svg'))
  assert 'F1' not in texts(tmp_path / 'curves.svg')


def test_a_picture_is_a_function_of_the_metrics(tmp_path):
  write_lines(tmp_path, {'step': 1, 'train/loss': 2.0}, {'step': 5, 'train/loss': 1.0})
  for name in ('a.svg', 'b.svg', 'a.png', 'a.pdf'):
    curves.draw([tmp_path], tmp_path / name)
  assert (tmp_path / 'a.svg').read_bytes() == (tmp_path / 'b.svg').read_bytes()
  assert (tmp_path / 'a.png').read_bytes().startswith(b'\x89PNG')
  assert (tmp_path / 'a.pdf').read_bytes().startswith(b'%PDF')


def test_nothing_looks_for_a_screen(tmp_path):
  write_lines(tmp_path, {'step': 1, 'train/loss': 2.0})
  code = ('import sys; from transformer.runs import curves; '
          f'curves.draw([{str(tmp_path)!r}], {str(tmp_path / "curves.svg")!r}); '
          'print("matplotlib.pyplot" in sys.modules)')
  done = subprocess.run([sys.executable, '-c', code], text=True, capture_output=True)
  assert done.stdout == 'False\n', done.stderr


@pytest.mark.long
def test_a_resumed_runs_curves_are_the_uninterrupted_ones(model, tmp_path):
  run(model, tmp_path / 'whole')
  with pytest.raises(InterruptedError):
    run(model, tmp_path / 'parts', fatal=9)
  # The metrics after the last checkpoint stay until the run is resumed.
  assert max(curves.read_points(tmp_path / 'parts')['train/loss'].steps) == 8
  run(model, tmp_path / 'parts')
  whole, parts = ({name: points for name, points in curves.read_points(tmp_path / each).items()
                   if name not in WALL_CLOCK} for each in ('whole', 'parts'))
  assert whole == parts and whole['train/loss'].steps == [4, 8, 12]
  pictures = []
  for name in ('whole', 'parts'):
    rows = map(json.loads, (tmp_path / name / 'metrics.jsonl').read_text().splitlines())
    # The numbers beside an axis of speeds may be wider, and then all panels are narrower.
    timeless = write_lines(tmp_path / f'{name} without times', *(
        {metric: value for metric, value in row.items() if metric not in WALL_CLOCK}
        for row in rows))
    curves.draw([timeless], tmp_path / f'{name}.svg')
    pictures.append(drawn(tmp_path / f'{name}.svg'))
  whole, parts = pictures
  assert whole.keys() == parts.keys() and (0, 'train/loss') in whole
  for line, points in whole.items():
    np.testing.assert_array_equal(points, parts[line])


@pytest.mark.parametrize('rows', [
    [], [{'step': 4, 'train/loss': 2.0, 'train/learning_rate': 0.1, 'tokens_per_second': 7.0}],
    [{'step': 4, 'train/loss': None}, {'step': 8, 'train/loss': None}]])
def test_a_run_without_an_evaluation_is_drawn(tmp_path, rows):
  write_lines(tmp_path, *rows)
  curves.draw([tmp_path], tmp_path / 'curves.svg')
  assert (0, 'valid/bleu') not in drawn(tmp_path / 'curves.svg')
  assert 'nothing was logged' in texts(tmp_path / 'curves.svg')


def test_a_line_breaks_where_a_number_is_none(tmp_path):
  write_lines(tmp_path, *({'step': step, 'train/loss': None if step == 3 else float(step)}
                          for step in range(1, 7)))
  points = curves.read_points(tmp_path)['train/loss']
  assert points.steps == [1, 2, 3, 4, 5, 6] and math.isnan(points.values[2])
  curves.draw([tmp_path], tmp_path / 'curves.svg')
  assert len(drawn(tmp_path / 'curves.svg')[0, 'train/loss']) == 5
  path, = (group.find(f'{SVG}path') for group in ElementTree.parse(
      tmp_path / 'curves.svg').iter(f'{SVG}g') if group.get('id') == '0/train/loss')
  assert path.get('d').count('M') == 2


@pytest.mark.parametrize('count', [2, 13])
def test_several_runs_are_drawn_over_one_another_by_name(tmp_path, count):
  # Names that matplotlib could misread, and a letter that its font lacks.
  names = ['_a', '$b$^', 'x&<y', '中', *(f'run{number}' for number in range(count))][:count]
  runs = [write_lines(tmp_path / name, {'step': 1, 'train/loss': 1.0 + number},
                      {'step': 2, 'train/loss': 2.0 + number}) for number, name in enumerate(names)]
  curves.draw(runs, tmp_path / 'all.svg')
  lines = drawn(tmp_path / 'all.svg')
  assert [number for number, _ in lines] == list(range(count))
  # The runs share one axis, so a line of higher numbers is higher up.
  heights = [pixels[0, 1] for pixels in lines.values()]
  assert heights == sorted(heights, reverse=True) and len(set(heights)) == count
  assert [str(each) for each in runs] == [each for each in texts(tmp_path / 'all.svg')
                                          if each.startswith(str(tmp_path))]


def test_a_score_a_little_beside_its_interval_is_drawn(tmp_path):
  curves.draw_scores('test: BLEU', [1, 2], [50.00000000000001, 40.0],
                     [(50.00000038, 50.00000038), (39.0, 41.0)], tmp_path / 'scores.svg')
  assert 'test: BLEU with its 95 % interval' in (tmp_path / 'scores.svg').read_text('utf-8')


def test_a_bar_reaches_from_the_lower_to_the_upper_end_of_its_interval(tmp_path):
  intervals = [(49.0, 55.0), (39.5, 41.0)]
  curves.draw_scores('test: BLEU', [1, 2], [50.0, 40.0], intervals, tmp_path / 'scores.svg')
  bars, = (group for group in ElementTree.parse(tmp_path / 'scores.svg').iter(f'{SVG}g')
           if group.get('id', '').startswith('LineCollection'))
  ends = np.array([pixels_of(path) for path in bars.iter(f'{SVG}path')])[..., 1]
  assert is_on_a_line(ends.ravel(), np.ravel(intervals))


@pytest.mark.parametrize('line', [
    b'{"step": 3, "train/loss": }', b'[]', b'7', b'{"train/loss": 1.0}', b'{"step": "x"}',
    b'{"step": 1.5}', b'{"step": -1}', b'{"step": true}', b'{"step": 1, "train/loss": [1]}',
    b'{"step": 1, "train/loss": "low"}', b'\xff\x00', b'', b'[' * 100_000,
    b'{"step": 1, "train/loss": 1' + b'0' * 400 + b'}'])
def test_a_damaged_line_is_named(tmp_path, line):
  write_lines(tmp_path, {'step': 1, 'train/loss': 1.0})
  with (tmp_path / 'metrics.jsonl').open('ab') as file:
    file.write(line + b'\n')
  with pytest.raises(UserError) as error:
    curves.draw([tmp_path], tmp_path / 'curves.svg')
  assert f'line 2 of {tmp_path}/metrics.jsonl should be a JSON object' in str(error.value)
  assert '\n' not in str(error.value) and not (tmp_path / 'curves.svg').exists()


def test_a_line_that_is_being_written_is_not_damaged(tmp_path):
  write_lines(tmp_path, {'step': 1, 'train/loss': 1.0})
  with (tmp_path / 'metrics.jsonl').open('ab') as file:
    file.write(b'{"step": 2, "train/lo')
  assert curves.read_points(tmp_path) == {'train/loss': ([1], [1.0])}


@pytest.mark.parametrize('fault', ['damage', 'missing', 'disk', 'library'])
def test_a_picture_that_cannot_be_drawn_is_warned_of_in_one_line(tmp_path, monkeypatch, fault):
  write_lines(tmp_path, {'step': 1, 'train/loss': 1.0})
  if fault == 'damage':
    (tmp_path / 'metrics.jsonl').write_text('no metrics\n')
  elif fault == 'missing':
    (tmp_path / 'metrics.jsonl').unlink()
  elif fault == 'disk':
    (tmp_path / 'curves.svg').mkdir()
  else:
    monkeypatch.setitem(__import__('sys').modules, 'matplotlib', None)
  warnings = []
  curves.draw_for_run(tmp_path, warnings.append)
  warning, = warnings
  assert warning.startswith('curves.svg was not drawn: ') and '\n' not in warning
