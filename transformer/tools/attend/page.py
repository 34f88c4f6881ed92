"""Attention maps as one HTML page, self-contained and offline.

The page's markup, style and scripts are in the same folder.
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

from transformer.model.attention_weights import SentenceAttention

PRECISION = 1000  # Weights are stored as integer thousandths.
_FOLDER = Path(__file__).parent
_SCRIPTS = ('token_chips.js', 'attention_lines.js', 'page.js')  # page.js comes last.
_PLACE = re.compile(r'\{\{(\w+)\}\}')
_BYTES = re.compile('(<0x[0-9A-F]{2}>)+')
# Unicode categories of invisible characters: control, format (such as direction marks), surrogates,
# private use, unassigned, and line and paragraph separators.
_INVISIBLE = ('Cc', 'Cf', 'Cs', 'Co', 'Cn', 'Zl', 'Zp')


def attention_page(maps: Sequence[SentenceAttention], about: str) -> bytes:
  """Builds the page, in UTF-8, of one model's sentences; `about` is the line below the title.

  No text of a sentence becomes markup: it is stored as JSON, which the page's script shows as text.
  No other script is allowed to run.
  """
  layers, heads = maps[0].cross.shape[:2]
  data = {
    'about': visible(about),
    'layers': layers,
    'heads': heads,
    'encoderLayers': len(maps[0].encoder),
    'precision': PRECISION,
    'sentences': list(map(_sentence, maps)),
  }
  style = (_FOLDER / 'page.css').read_text(encoding='utf-8')
  script = ''.join((_FOLDER / name).read_text(encoding='utf-8') for name in _SCRIPTS)
  policy = (
    f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
    f"base-uri 'none'; form-action 'none'"
  )
  # `<` would end the script element, or start a comment in it.
  text = json.dumps(data, ensure_ascii=False, separators=(',', ':')).replace(
    '<', '\\u003c'
  )
  parts = {'policy': policy, 'style': style, 'script': script, 'data': text}
  template = (_FOLDER / 'page.html').read_text(encoding='utf-8')
  return _PLACE.sub(lambda match: parts[match[1]], template).encode('utf-8')


def thousandths(weights: np.ndarray) -> np.ndarray:
  """Rounds weights to thousandths, uint16."""
  return np.rint(PRECISION * weights).astype(np.uint16)


def visible(text: str) -> str:
  """Replaces characters that are invisible or reorder text, such as U+200B, by visible ones."""

  def visible_form(character: str) -> str:
    category = unicodedata.category(character)
    if category in _INVISIBLE:
      return f'⟨U+{ord(character):04X}⟩'
    if category == 'Zs' and character != ' ':
      return '␣'
    return character

  return ''.join(map(visible_form, text))


def _token(piece: str) -> str:
  return visible(piece.replace(' ', '␣'))


def _sentence(attention: SentenceAttention) -> dict:
  """Returns a sentence's data; weights are little-endian uint16, deflated, in base64."""
  weights = b''.join(
    thousandths(kind).astype('<u2').tobytes()
    for kind in (attention.encoder, attention.decoder, attention.cross)
  )
  return {
    'weights': base64.b64encode(zlib.compress(weights, 9)).decode('ascii'),
    'source': list(map(_token, attention.source)),
    'target': list(map(_token, attention.target)),
    'sourceWords': _words(attention.source),
    'targetWords': _words(attention.target),
  }


def _words(pieces: Sequence[str]) -> list[tuple[str, int, int]]:
  """Returns each word with the indices of its first piece and of the piece after it.

  Pieces are joined to words at spaces. Punctuation at the end of a word, and EOS, are separate
  words.
  """
  end = len(pieces) - 1
  starts = [end + 1, end]
  for place in reversed(range(end)):
    is_mark = starts[-1] == place + 1 and all(map(_is_punctuation, pieces[place]))
    if not place or pieces[place].startswith('▁') or is_mark:
      starts.append(place)
  words = []
  for start, stop in itertools.pairwise(reversed(starts)):
    text = _BYTES.sub(_decoded, ''.join(pieces[start:stop]).replace('▁', ' '))
    words.append((_token(text.strip()) or '␣', start, stop))
  return words


def _decoded(match: re.Match) -> str:
  """Returns the text of byte pieces."""
  return bytes.fromhex(re.sub('<0x|>', '', match[0])).decode(errors='replace')


def _is_punctuation(character: str) -> bool:
  return unicodedata.category(character).startswith('P')


def _digest(content: str) -> str:
  """Returns the digest by which a content security policy allows a script or style."""
  digest = hashlib.sha256(content.encode()).digest()
  return f"'sha256-{base64.b64encode(digest).decode()}'"
