"""Opens a page in headless Chromium, and reads what a person would see."""

import html.parser
import json
import pathlib
import shutil
import subprocess
from typing import NamedTuple

import numpy as np
from PIL import Image

CHROMIUM = shutil.which('chromium')
# Where all cores are busy, Chromium sometimes closes a page that it has not drawn.
_TRIES = 3
_VOID = {'meta', 'br', 'img', 'input', 'link'}


class Element(NamedTuple):
  """An element of the DOM: its tag, attributes, and children, which are elements and text."""

  tag: str
  attributes: dict
  children: list

  @property
  def text(self):
    return ''.join(
      item if isinstance(item, str) else item.text for item in self.children
    )

  @property
  def elements(self):
    return [item for item in self.children if not isinstance(item, str)]

  def all(self):
    yield self
    for item in self.elements:
      yield from item.all()

  def by_id(self, name):
    (result,) = (item for item in self.all() if item.attributes.get('id') == name)
    return result


class _Tree(html.parser.HTMLParser):
  def __init__(self, text):
    super().__init__()
    self.stack = [Element('', {}, [])]
    self.feed(text)

  def handle_starttag(self, tag, attributes):
    made = Element(tag, dict(attributes), [])
    self.stack[-1].children.append(made)
    if tag not in _VOID:
      self.stack.append(made)

  def handle_endtag(self, tag):
    assert self.stack.pop().tag == tag

  def handle_data(self, text):
    self.stack[-1].children.append(text)


class Seen(NamedTuple):
  """The document, an array [height, width, 3] of its pixels, and what a probe returned."""

  document: Element
  pixels: np.ndarray
  probed: object


def look(
  page: bytes, folder: pathlib.Path, fragment='', *, probe=None, dark=False
) -> Seen:
  """Opens a page in a window; `folder` is an empty one, for the browser's files.

  A probe is the body of an async function, which runs in the page once it is drawn; its result is
  in `Seen.probed`. The page's policy, which would block it, is removed.
  """
  if probe is not None:
    head, _, tail = page.partition(b'<meta http-equiv="Content-Security-Policy"')
    page = head + tail.partition(b'>')[2].replace(
      b'</body>',
      b"""<script>(async () => {
        while (!document.querySelector('#queries button')) await new Promise(requestAnimationFrame);
        const found = await (async () => {%s})();
        const kept = document.body.appendChild(document.createElement('pre'));
        kept.id = 'probed';
        kept.hidden = true;
        kept.textContent = JSON.stringify(found);
        })()</script></body>"""
      % probe.encode(),
    )
  path, picture = folder / 'page.html', folder / 'page.png'
  path.write_bytes(page)
  drawn = 'queries' if probe is None else 'probed'
  for number in range(_TRIES):
    try:
      done = subprocess.run(
        [
          CHROMIUM,
          '--headless',
          '--no-sandbox',
          '--disable-gpu',
          '--hide-scrollbars',
          '--virtual-time-budget=60000',
          '--window-size=1280,1600',
          f'--blink-settings=preferredColorScheme={int(not dark)}',
          f'--user-data-dir={folder}/user{number}',
          f'--screenshot={picture}',
          '--dump-dom',
          f'{path.as_uri()}#{fragment}',
        ],
        check=True,
        capture_output=True,
        timeout=100,
      )
    except subprocess.SubprocessError:  # It crashed or hung.
      if number == _TRIES - 1:
        raise
      continue
    document = _Tree(done.stdout.decode('utf-8')).stack[0]
    if picture.exists() and any(
      item.attributes.get('id') == drawn and item.children for item in document.all()
    ):
      break
  with Image.open(picture) as image:
    pixels = np.asarray(image.convert('RGB'))
  return Seen(
    document, pixels, json.loads(document.by_id('probed').text) if probe else None
  )


def percents(row):
  """Returns thousandths as the page prints them."""
  return [f'{item / 10:.1f}\xa0%' for item in row]
