"""Attention maps as one HTML page, which needs no other file, no server and no network.

The page's markup, style and scripts are in the files beside this one.
"""

import base64
import hashlib
import itertools
import json
import re
import unicodedata
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import logging

from transformer.data.batch import EOS_ID
from transformer.runs.loading import check_finite
from transformer.tools.attend.attention_maps import AttentionMap, attention_maps
from transformer.trained_run import TrainedRun

# The page holds weights in whole thousandths; those of a row sum to 1000.
PRECISION = 1000
_FOLDER = Path(__file__).parent
_SCRIPTS = ('chips.js', 'lines.js', 'page.js')  # The last one draws.
_PLACE = re.compile(r'\{\{(\w+)\}\}')
# Unicode's categories of characters that cannot be seen: control, format (such as marks of
# direction), surrogates, private use, unassigned, and separators of lines and paragraphs.
_INVISIBLE = ('Cc', 'Cf', 'Cs', 'Co', 'Cn', 'Zl', 'Zp')


def page_of_run(
  run: TrainedRun,
  sources: Sequence[str],
  translations: Sequence[str],
  numbers: Sequence[int],
) -> bytes:
  """Builds the page for sentences and their translations by a run; warns where they are cut.

  The numbers are those of the sentences on the page, such as their lines.

  Raises:
    UserError: the weights are not finite: the model has diverged.
  """
  maps = attention_maps(run, sources, translations)
  check_finite([run], (float(shown.weights.cross.sum()) for shown in maps), numbers)
  for side, kind, most in (
    (0, 'sources', 'data.max_length'),
    (1, 'translations', 'data.max_length + decode.max_extra_length'),
  ):
    cut = sum(shown.cut[side] for shown in maps)
    if cut:
      logging.warning(
        '%d of %d %s were longer than %s and were cut', cut, len(maps), kind, most
      )
  about = f'{run.workdir.resolve().name}, step {", ".join(map(str, run.steps))}'
  return attention_page(maps, run.vocabulary, about, numbers)


def attention_page(
  maps: Sequence[AttentionMap], vocabulary, about: str, numbers: Sequence[int]
) -> bytes:
  """Builds the page, in UTF-8.

  No text of a sentence becomes markup: the page holds it as JSON, which the page's script
  shows as text. No other script is allowed to run.

  Args:
    maps: at least one, all by one model.
    vocabulary: has the pieces of its `source` and its `target`.
    about: the line under the title.
    numbers: the number of each sentence, such as its line.
  """
  layers, heads = maps[0].weights.cross.shape[:2]
  data = {
    'about': visible(about),
    'layers': layers,
    'heads': heads,
    'encoderLayers': len(maps[0].weights.encoder),
    'precision': PRECISION,
    'sentences': [
      _sentence(shown, vocabulary, number)
      for shown, number in zip(maps, numbers, strict=True)
    ],
  }
  style = (_FOLDER / 'page.css').read_text(encoding='utf-8')
  script = ''.join((_FOLDER / name).read_text(encoding='utf-8') for name in _SCRIPTS)
  policy = (
    f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
    f"base-uri 'none'; form-action 'none'"
  )
  # A `<` would end the script element, or begin a comment in it, wherever it stands.
  text = json.dumps(data, ensure_ascii=False, separators=(',', ':')).replace(
    '<', '\\u003c'
  )
  parts = {'policy': policy, 'style': style, 'script': script, 'data': text}
  template = (_FOLDER / 'page.html').read_text(encoding='utf-8')
  return _PLACE.sub(lambda match: parts[match[1]], template).encode('utf-8')


def thousandths(weights: np.ndarray) -> np.ndarray:
  """Rounds rows of weights to thousandths, uint16, so that each still sums to one.

  All weights are rounded down; then those that lost most are rounded up, until the
  sum is right (the largest remainder method). No row of the weights, [..., K], is all zeros.
  """
  exact = weights.astype(np.float64)
  exact *= PRECISION / exact.sum(-1, keepdims=True)
  whole = np.floor(exact)
  missing = np.round(PRECISION - whole.sum(-1, keepdims=True))
  by_loss = np.argsort(whole - exact, axis=-1, kind='stable')
  rank = np.argsort(by_loss, axis=-1)
  return (whole + (rank < missing)).astype(np.uint16)


def visible(text: str) -> str:
  """Writes out characters that cannot be seen or that move other text, such as U+200B."""

  def shown(character: str) -> str:
    category = unicodedata.category(character)
    if category in _INVISIBLE:
      return f'⟨U+{ord(character):04X}⟩'
    if category == 'Zs' and character != ' ':
      return '␣'
    return character

  return ''.join(map(shown, text))


def _token(piece: str) -> str:
  return visible(piece.replace(' ', '␣'))


def _sentence(shown: AttentionMap, vocabulary, number: int) -> dict:
  """Returns a sentence's data; weights are little-endian uint16, deflated and in base64."""
  weights = b''.join(
    thousandths(kind).astype('<u2').tobytes() for kind in shown.weights
  )
  data = {
    'number': number,
    'cut': shown.cut,
    'weights': base64.b64encode(zlib.compress(weights, 9)).decode('ascii'),
  }
  for side in ('source', 'target'):
    language = getattr(vocabulary, side)
    ids = getattr(shown, side)
    data[side] = [_token(language.piece(token)) for token in ids]
    data[f'{side}Words'] = _words(language, ids)
  return data


def _words(vocabulary, ids: Sequence[int]) -> list[tuple[str, int, int]]:
  """Returns each word with its first piece and the piece after it.

  Words are joined at spaces. Punctuation at the end of a word, and the end token, are words too.
  """
  pieces = [vocabulary.piece(token) for token in ids]
  starts = [len(ids)]
  for place in reversed(range(len(ids))):
    is_mark = starts[-1] == place + 1 and all(map(_is_punctuation, pieces[place]))
    begins = not place or pieces[place].startswith('▁')
    if begins or is_mark or ids[place] == EOS_ID:
      starts.append(place)
  words = []
  for start, stop in itertools.pairwise(reversed(starts)):
    text = pieces[start]
    if ids[start] != EOS_ID:
      text = vocabulary.decode(ids[start:stop])
    words.append((_token(text) or '␣', start, stop))
  return words


def _is_punctuation(character: str) -> bool:
  return unicodedata.category(character).startswith('P')


def _digest(content: str) -> str:
  """Returns the digest by which a content security policy allows a script or a style."""
  digest = hashlib.sha256(content.encode()).digest()
  return f"'sha256-{base64.b64encode(digest).decode()}'"
