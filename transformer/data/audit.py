r"""Looks at the text that a config names, before a run is trained on it.

  python -m transformer.data.audit --config=configs/text.py --config.data.dir=DIR
  python -m transformer.data.audit --config=configs/text.py --config.data.dir=DIR --json=FILE

Every pair of the training, validation and test text is read once. The report says where the two
sides do not belong together, what is empty, extreme, repeated, of another script or broken, how
well the vocabulary covers the text, and what of the validation and test text is in training too.
The vocabulary is one that a run has, --vocabulary=RUN/vocabulary.model, or else is learnt as
train.py would learn it. Nothing is changed. Of a pair 24 bytes are kept, and 61 while repeated
pairs are counted: 2.5 GB for 40 million.
"""

import json
import sys
from pathlib import Path

from absl import flags

from transformer import command_line
from transformer.config import Config
from transformer.data.audit_table import as_table
from transformer.data.text_report import look_over
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError

_CONFIG = command_line.define_config()
_VOCABULARY = flags.DEFINE_string('vocabulary', None, 'A vocabulary.model; default: learn one.')
_JSON = flags.DEFINE_string('json', None, 'Also write the report to this file; - writes it to '
                            'standard output, in place of the table.')
_EXAMPLES = flags.DEFINE_integer('examples', 3, 'How many examples of each finding are kept.')


def main(_):
  """Wires flags to the audit, and prints what it finds."""
  if _CONFIG.value is None:
    raise UserError('--config=configs/NAME.py is needed; it says where the text is')
  command_line.check_at_least(0, _EXAMPLES)
  config = Config.from_dict(_CONFIG.value.to_dict())
  if config.train.init_from and not _VOCABULARY.value:
    raise UserError(f'a run takes its vocabulary from train.init_from; give '
                    f'--vocabulary={config.train.init_from}/vocabulary.model')
  if _JSON.value == '':
    raise UserError('--json= names nothing; leave it out, or give it a file')
  path = Path(_JSON.value).expanduser() if _JSON.value not in (None, '-') else None
  if path and path.is_dir():
    raise UserError(f'--json must name a file; {path} is a directory')
  if path:
    command_line.check_folder('json', path.parent)
  vocabulary = (Vocabulary.load(Path(_VOCABULARY.value).expanduser()) if _VOCABULARY.value
                else None)
  report = look_over(config.data, vocabulary, origin=_VOCABULARY.value or '',
                     examples=_EXAMPLES.value)
  text = json.dumps(report, indent=2, ensure_ascii=False) + '\n'
  if path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding='utf-8', errors='backslashreplace')
  sys.stdout.reconfigure(encoding='utf-8', errors='backslashreplace')
  print(text if _JSON.value == '-' else as_table(report), end='')


if __name__ == '__main__':
  command_line.run(main)
