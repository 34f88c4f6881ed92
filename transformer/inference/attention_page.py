"""Attention maps as one HTML page, which needs no other file, no server and no network.

The page's markup, style and script are the three files beside this one.
"""

import base64
import hashlib
import json
import re
import unicodedata
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer.inference.attention_maps import AttentionMap, Word

# Weights are kept as whole thousandths, those of a row with a sum of 1000.
PRECISION = 1000
_FOLDER = Path(__file__).parent
_PLACE = re.compile(r'\{\{(\w+)\}\}')
# Control characters, marks of direction and the like, lone surrogates, private use, unassigned;
# separators of lines and paragraphs.
_INVISIBLE = ('Cc', 'Cf', 'Cs', 'Co', 'Cn', 'Zl', 'Zp')


def attention_page(maps: Sequence[AttentionMap], about: str,
                   numbers: Sequence[int] | None = None) -> bytes:
  """Builds the page.

  Nothing that the maps say becomes markup: it is in the page as JSON alone, which
  the page's script shows as text, and no other script is allowed to run.

  Args:
    maps: at least one sentence, all of one model.
    about: what stands under the title.
    numbers: what a sentence is called, such as the number of its line; default: 1, 2, …

  Returns:
    The page, UTF-8.
  """
  layers, heads = maps[0].weights.cross.shape[:2]
  data = {'about': visible(about), 'layers': layers, 'heads': heads, 'precision': PRECISION,
          'sentences': [_sentence(each, number) for each, number in zip(
              maps, numbers or range(1, len(maps) + 1), strict=True)]}
  style, script = ((_FOLDER / f'attention_page.{kind}').read_text(encoding='utf-8')
                   for kind in ('css', 'js'))
  policy = (f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
            f"base-uri 'none'; form-action 'none'")
  # A `<` would end the script element, or begin a comment in it, wherever it stands.
  text = json.dumps(data, ensure_ascii=False, separators=(',', ':')).replace('<', '\\u003c')
  parts = {'policy': policy, 'style': style, 'script': script, 'data': text}
  template = (_FOLDER / 'attention_page.html').read_text(encoding='utf-8')
  return _PLACE.sub(lambda match: parts[match[1]], template).encode('utf-8')


def thousandths(weights: np.ndarray) -> np.ndarray:
  """Rounds rows of weights so that each still sums to one.

  Each weight becomes the whole number of thousandths below or above it: the ones
  that lose most by rounding down are rounded up, as many as the sum needs.

  Args:
    weights: [..., K], no row of which is zero.

  Returns:
    uint16 of the same shape; each row sums to 1000, and no weight moves by 1 or more.
  """
  exact = weights.astype(np.float64)
  exact *= PRECISION / exact.sum(-1, keepdims=True)
  whole = np.floor(exact)
  missing = np.round(PRECISION - whole.sum(-1, keepdims=True))
  rank = np.argsort(np.argsort(whole - exact, axis=-1, kind='stable'), axis=-1)
  return (whole + (rank < missing)).astype(np.uint16)


def visible(text: str) -> str:
  """Writes out what one would not see, or what would move other text, such as U+200B."""
  return ''.join(f'⟨U+{ord(each):04X}⟩' if unicodedata.category(each) in _INVISIBLE
                 else '␣' if unicodedata.category(each) == 'Zs' and each != ' ' else each
                 for each in text)


def _token(piece: str) -> str:
  return visible(piece.replace(' ', '␣'))


def _words(words: Sequence[Word]) -> list[list]:
  return [[_token(word.text) or '␣', word.start, word.stop] for word in words]


def _sentence(each: AttentionMap, number: int) -> dict:
  """What the page is told of a sentence; weights are little-endian, deflated and in base64."""
  weights = b''.join(thousandths(kind).astype('<u2').tobytes() for kind in each.weights)
  return {'number': number, 'cut': [each.source_cut, each.target_cut],
          'source': [_token(piece) for piece in each.source],
          'target': [_token(piece) for piece in each.target],
          'sourceWords': _words(each.source_words), 'targetWords': _words(each.target_words),
          'weights': base64.b64encode(zlib.compress(weights, 9)).decode('ascii')}


def _digest(content: str) -> str:
  """What a content security policy knows a script or a style by."""
  return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
