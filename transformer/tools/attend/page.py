"""Attention maps as one HTML page, which needs no other file, no server and no network.

The page's markup, style and scripts are in the files beside this one.
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
from absl import logging

from transformer.decoding.attention_maps import Attender
from transformer.decoding.ensemble import check_finite
from transformer.runs.loading import Run
from transformer.tools.attend.sentences import Sentence, Word, sentences_of

# The page holds weights in whole thousandths; those of a row sum to 1000.
PRECISION = 1000
_FOLDER = Path(__file__).parent
_SCRIPTS = ('chips.js', 'lines.js', 'page.js')  # The last one draws.
_PLACE = re.compile(r'\{\{(\w+)\}\}')
# Unicode's categories of characters that cannot be seen: control, format (such as marks of
# direction), surrogates, private use, unassigned, and separators of lines and paragraphs.
_INVISIBLE = ('Cc', 'Cf', 'Cs', 'Co', 'Cn', 'Zl', 'Zp')


def page_of_run(run: Run, sources: Sequence[str], translations: Sequence[str],
                numbers: Sequence[int]) -> tuple[bytes, list[Sentence]]:
  """Builds the page for sentences and their translations by a run; warns where they are cut.

  Args:
    run: the run whose attention is shown.
    sources: sentences, one at least.
    translations: one for each sentence.
    numbers: the number of each sentence on the page, such as its line.

  Returns:
    The page, UTF-8, and the sentences on it.

  Raises:
    UserError: the weights are not finite: the model has diverged.
  """
  config = run.config
  longest = config.data.max_length
  attend = Attender(run.model, run.vocabulary, longest, longest + config.decode.max_extra_length)
  sentences = sentences_of(attend(run.params, sources, translations), run.vocabulary)
  check_finite([run], (float(shown.weights.cross.sum()) for shown in sentences), numbers)
  for kind, name, most in (('sources', 'source_cut', 'data.max_length'),
                           ('translations', 'target_cut',
                            'data.max_length + decode.max_extra_length')):
    if cut := sum(getattr(shown, name) for shown in sentences):
      logging.warning('%d of %d %s were longer than %s and were cut', cut, len(sentences), kind,
                      most)
  steps = ', '.join(map(str, run.steps))
  about = f'{run.workdir.resolve().name}, step {steps}'
  return attention_page(sentences, about, numbers), sentences


def attention_page(sentences: Sequence[Sentence], about: str,
                   numbers: Sequence[int] | None = None) -> bytes:
  """Builds the page.

  No text of a sentence becomes markup: the page holds it as JSON, which the page's script
  shows as text. No other script is allowed to run.

  Args:
    sentences: at least one, all by one model.
    about: the line under the title.
    numbers: the number of each sentence, such as its line; default: 1, 2, …

  Returns:
    The page, UTF-8.
  """
  layers, heads = sentences[0].weights.cross.shape[:2]
  data = {'about': visible(about), 'layers': layers, 'heads': heads,
          'encoderLayers': len(sentences[0].weights.encoder), 'precision': PRECISION,
          'sentences': [_sentence(shown, number) for shown, number in zip(
              sentences, numbers or range(1, len(sentences) + 1), strict=True)]}
  style = (_FOLDER / 'page.css').read_text(encoding='utf-8')
  script = ''.join((_FOLDER / name).read_text(encoding='utf-8') for name in _SCRIPTS)
  policy = (f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
            f"base-uri 'none'; form-action 'none'")
  # A `<` would end the script element, or begin a comment in it, wherever it stands.
  text = json.dumps(data, ensure_ascii=False, separators=(',', ':')).replace('<', '\\u003c')
  parts = {'policy': policy, 'style': style, 'script': script, 'data': text}
  template = (_FOLDER / 'page.html').read_text(encoding='utf-8')
  return _PLACE.sub(lambda match: parts[match[1]], template).encode('utf-8')


def thousandths(weights: np.ndarray) -> np.ndarray:
  """Rounds rows of weights so that each still sums to one.

  All weights are rounded down; then those that lost most are rounded up, until the
  sum is right (the largest remainder method).

  Args:
    weights: [..., K]; no row is all zeros.

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
  """Writes out characters that cannot be seen or that move other text, such as U+200B."""
  return ''.join(f'⟨U+{ord(each):04X}⟩' if unicodedata.category(each) in _INVISIBLE
                 else '␣' if unicodedata.category(each) == 'Zs' and each != ' ' else each
                 for each in text)


def _token(piece: str) -> str:
  return visible(piece.replace(' ', '␣'))


def _words(words: Sequence[Word]) -> list[list]:
  return [[_token(word.text) or '␣', word.start, word.stop] for word in words]


def _sentence(each: Sentence, number: int) -> dict:
  """Returns a sentence's data; weights are little-endian uint16, deflated and in base64."""
  weights = b''.join(thousandths(kind).astype('<u2').tobytes() for kind in each.weights)
  return {'number': number, 'cut': [each.source_cut, each.target_cut],
          'source': [_token(piece) for piece in each.source],
          'target': [_token(piece) for piece in each.target],
          'sourceWords': _words(each.source_words), 'targetWords': _words(each.target_words),
          'weights': base64.b64encode(zlib.compress(weights, 9)).decode('ascii')}


def _digest(content: str) -> str:
  """Returns the digest by which a content security policy allows a script or a style."""
  return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
