"""The report is one page for any browser, and text of a run is never markup."""

import base64
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from transformer import load
from transformer.tools.card import report, run_facts
from transformer.tools.card.attention_table import attention_table

CHROMIUM = shutil.which('chromium')
HOSTILE = (
  '</style><script>alert(1)</script><img src=http://x/y onerror=alert(1)>$data \x00'
)
# What a browser has drawn: boxes in pixels, and the width of the curves before they are scaled.
PROBE = """<script>addEventListener('load', () => {
  const box = (each) => {
    const {left, top, width, height} = each.getBoundingClientRect();
    return [left, top, width, height];
  };
  const curves = document.querySelector('#curves img');
  const cells = [...document.querySelectorAll('table.map')].map(
      (map) => [...map.rows].slice(1).map((row) => [...row.cells].slice(1).map(box)));
  const kept = document.body.appendChild(document.createElement('pre'));
  kept.id = 'probed';
  kept.hidden = true;
  kept.textContent = JSON.stringify(
      {curves: curves && [curves.naturalWidth, box(curves)], cells,
       wide: document.documentElement.scrollWidth});
})</script></body>"""


class Tags(html.parser.HTMLParser):
  """The tags of a page with their attributes, and the texts."""

  def __init__(self, page):
    super().__init__()
    self.tags, self.texts = [], []
    self.feed(page)

  def handle_starttag(self, tag, attributes):
    self.tags.append((tag, dict(attributes)))

  def handle_data(self, text):
    self.texts.append(text)


def page_of(workdir, count=2):
  run = load(workdir)
  facts = run_facts.read_facts(workdir)._replace(steps=run.checkpoint_steps)
  return report.report_text(facts, run, count)


def sentences_of(workdir):
  (path,) = (workdir / 'eval').glob('test.*.sentences.jsonl')
  return path, [json.loads(line) for line in path.read_text('utf-8').splitlines()]


def test_the_page_has_scores_settings_digests_and_examples(scored):
  pytest.importorskip('transformer.tools.plot.curves')
  page = page_of(scored)
  texts = Tags(page).texts
  _, sentences = sentences_of(scored)
  for sentence in sentences:
    assert {sentence['source'], sentence['translation'], *sentence['references']} <= {
      *texts
    }
  (path,) = (scored / 'eval').glob('test.*[0-9].json')
  result = json.loads(path.read_bytes())
  for metric in result['metrics']:
    low, high = metric['interval_95']
    assert {
      f'{metric["score"]:.2f}',
      f'{low:.2f} … {high:.2f}',
      metric['signature'],
    } <= {*texts}
  place = texts.index('model.ff_dim')
  assert texts[place : place + 3] == ['model.ff_dim', '11', '2048']
  assert 'model.dropout' not in texts  # It is the default.
  digests = [*json.loads((scored / 'run.json').read_bytes())['data'].values()]
  assert {*digests, *result['checkpoints_sha256'], result['commit']} <= {*texts}


def test_the_maps_have_the_weights_of_the_run(scored):
  run = load(scored)
  _, (sentence, *_) = sentences_of(scored)
  attention = run.attention(sentence['source'], sentence['translation'])
  weights_HTS = attention.cross[-1]
  tables = re.findall(r'<table class="(map|small)">(.*?)</table>', page_of(scored, 1))
  assert [kind for kind, _ in tables] == ['map'] + ['small'] * len(weights_HTS)
  for (_, table), weights_TS in zip(
    tables, [weights_HTS.mean(0), *weights_HTS], strict=True
  ):
    shades = np.array(re.findall(r'--w:(\d+)%', table), float).reshape(weights_TS.shape)
    np.testing.assert_allclose((shades / 100) ** 2, weights_TS, atol=0.0101)


def test_text_of_a_run_is_no_markup_and_the_page_fetches_nothing(scored):
  harmless = page_of(scored)
  path, sentences = sentences_of(scored)
  for sentence in sentences:
    sentence['references'] = [HOSTILE]
  path.write_text(
    ''.join(f'{json.dumps(sentence)}\n' for sentence in sentences), 'utf-8'
  )
  page = page_of(scored)
  assert [tag for tag, _ in Tags(page).tags] == [tag for tag, _ in Tags(harmless).tags]
  assert HOSTILE in Tags(page).texts
  for tag, attributes in Tags(page).tags:
    assert tag not in ('script', 'link', 'iframe')
    assert attributes.get('src', 'data:').startswith('data:')
  assert "default-src 'none'" in page and not re.search(r'url\(|@import', page)
  label = attention_table(['<b>\u200b'], ['x'], np.ones((1, 1)), 'map')
  assert '<b>' not in label and '\u200b' not in label


def test_the_curves_are_the_runs_and_have_no_path_of_the_machine(scored):
  pytest.importorskip('transformer.tools.plot.curves')
  (content,) = re.findall(r'src="data:image/svg\+xml;base64,(.*?)"', page_of(scored, 0))
  picture = base64.b64decode(content).decode('utf-8')
  assert 'scored: train' in picture and 'scored: valid' in picture
  assert str(scored.parent) not in picture


@pytest.mark.parametrize('missing', ['matplotlib', 'transformer.tools.plot'])
def test_without_the_packages_of_curves_a_line_says_so(scored, monkeypatch, missing):
  for name in [
    name for name in sys.modules if name.startswith('transformer.tools.plot')
  ]:
    monkeypatch.delitem(sys.modules, name)
  monkeypatch.setitem(sys.modules, missing, None)
  page = page_of(scored, 0)
  assert f'no curves: there is no {missing}' in page and 'id="examples"' in page


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason='there is no chromium')
def test_a_browser_shows_the_curves_and_the_maps(card, scored, tmp_path):
  PIL = pytest.importorskip('PIL.Image')
  pytest.importorskip('transformer.tools.plot.curves')
  status, _, err = card(scored)
  assert status == 0, err
  page = (scored / 'report.html').read_text('utf-8')
  # The page's policy would not let the probe run.
  head, _, tail = page.partition('<meta http-equiv="Content-Security-Policy"')
  probed = head + tail.partition('>')[2].replace('</body>', PROBE)
  document, pixels = look(page, tmp_path / 'plain', PIL)
  assert 'Examples' in document
  document, with_probe = look(probed, tmp_path / 'probed', PIL)
  # With its policy, the page looks the same.
  assert np.abs(with_probe.astype(int) - pixels).mean() < 1
  found = json.loads(re.search(r'id="probed".*?>(.*?)</pre>', document)[1])
  assert found['wide'] <= pixels.shape[1]
  natural, (left, top, width, height) = found['curves']
  assert natural > 300
  curves = pixels[int(top) : int(top + height), int(left) : int(left + width)].astype(
    int
  )
  blue = (curves[..., 2] - curves[..., 0] > 100).sum()
  assert blue > 200  # Lines of matplotlib's first color.
  run = load(scored)
  _, sentences = sentences_of(scored)
  assert len(found['cells']) == len(sentences)
  for boxes, sentence in zip(found['cells'], sentences, strict=True):
    attention = run.attention(sentence['source'], sentence['translation'])
    weights_TS = attention.cross[-1].mean(0)
    light_TS = np.array([[brightness(pixels, box) for box in row] for row in boxes])
    assert light_TS.shape == weights_TS.shape
    order = np.argsort(weights_TS, axis=None)
    least, most = order[0], order[-1]
    assert light_TS.flat[most] <= light_TS.flat[least]
    np.testing.assert_array_less(light_TS[weights_TS > 0.05], 230 * 3)


def brightness(pixels, box):
  left, top, width, height = box
  return int(pixels[int(top + height / 2), int(left + width / 2)].astype(int).sum())


def look(page, folder: pathlib.Path, images):
  """Returns the document that a browser has made of a page, and its pixels."""
  folder.mkdir()
  path, picture = folder / 'page.html', folder / 'page.png'
  path.write_text(page, 'utf-8')
  command = [
    CHROMIUM,
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--hide-scrollbars',
  ]
  command += ['--virtual-time-budget=20000', '--window-size=1200,6000', '--dump-dom']
  command += [
    '--blink-settings=preferredColorScheme=1',
    f'--user-data-dir={folder}/user',
  ]
  done = subprocess.run(
    [*command, f'--screenshot={picture}', path.as_uri()],
    check=True,
    capture_output=True,
    timeout=100,
    env=os.environ,
  )
  with images.open(picture) as image:
    return done.stdout.decode('utf-8'), np.asarray(image.convert('RGB'))
