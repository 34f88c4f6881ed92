r"""Reports faults in the text of a config, before a run trains on it.

  python -m transformer.tools.audit --config=configs/text.py --config.data.dir=DIR
  python -m transformer.tools.audit --config=configs/text.py --config.data.dir=DIR --json=FILE

The audit reads every pair of the training, validation and test text once, and changes no text.
docs/data.md lists the findings.

The vocabulary is the one of the config's `train.init_from` or `data.vocabulary`; else the audit
learns one as train.py does.
"""

import itertools

from absl import flags

from transformer import files
from transformer.commands import shared_flags
from transformer.commands.request import check_output
from transformer.config import Config
from transformer.data.vocabulary import vocabularies
from transformer.errors import UserError
from transformer.evaluation.texts import split_files
from transformer.system import command_line, outputs
from transformer.tools.audit.report import as_json, audit, report_lines

_CONFIG = shared_flags.define_config()
_JSON = flags.DEFINE_string(
  'json', None, 'Also write the line numbers of all findings to this file.'
)
_EXAMPLES = flags.DEFINE_integer('examples', 3, 'Examples of each finding.')


def main(_):
  """Runs the audit that the flags describe, and prints the report."""
  if _CONFIG.value is None:
    raise UserError('--config=configs/NAME.py is needed; it says where the text is')
  shared_flags.check_at_least(0, _EXAMPLES)
  config = Config.from_dict(_CONFIG.value.to_dict())
  data = config.data
  splits = [*data.train, *data.valid_sets.values(), data.test]
  read = itertools.chain(*(split_files(data, split) for split in splits if split))
  check_output(_JSON.value, read, flag='json')
  origin = config.train.init_from
  earlier = vocabularies.load(files.as_path(origin)) if origin else None
  audited = {}
  for name, corpus in audit(data, earlier):
    audited[name] = corpus
    print(*report_lines(name, corpus, _EXAMPLES.value), sep='\n', end='\n\n')
  if _JSON.value:
    outputs.write(files.as_path(_JSON.value), files.as_json(as_json(audited)))


start = command_line.starter(main)  # `attention-audit` calls it.

if __name__ == '__main__':
  start()
