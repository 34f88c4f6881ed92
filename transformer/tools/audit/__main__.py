r"""Reports problems in the dataset of a config before training.

  python -m transformer.tools.audit --config=configs/text.py --config.data.dir=DIR
  python -m transformer.tools.audit --config=configs/text.py --config.data.dir=DIR --json=FILE
  python -m transformer.tools.audit --config=configs/text.py --config.data.dir=DIR --write=FOLDER

The audit reads every pair of the training, validation and test sets once, and changes no file.
--write writes the dataset to a different folder, without the training pairs that have findings;
--keep names kinds of findings to keep. docs/data.md lists the kinds.

The vocabulary is taken from `train.init_from` or `data.vocabulary`; otherwise, the audit learns one
as train.py does.
"""

import itertools
import shlex
from pathlib import Path

from absl import flags

from transformer import files
from transformer.cli import shared_flags
from transformer.cli.request import check_output
from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.vocabulary import vocabularies
from transformer.errors import UserError
from transformer.evaluation.eval_sets import split_files
from transformer.system import command_line, outputs
from transformer.tools.audit import filtering, language_id
from transformer.tools.audit.report import AuditedCorpus, as_json, audit, report_lines

_CONFIG = shared_flags.define_config()
_JSON = flags.DEFINE_string(
  'json', None, 'Also write the line numbers of all findings to this file.'
)
_EXAMPLES = flags.DEFINE_integer('examples', 3, 'Examples of each finding.')
_IDENTIFY_LANGUAGES = flags.DEFINE_bool(
  'identify_languages', False, 'Also find lines in another language; needs py3langid.'
)
_WRITE = flags.DEFINE_string(
  'write',
  None,
  'A new folder for a copy of the text without training pairs that have findings.',
)
_KEEP = flags.DEFINE_list(
  'keep', ['bytes'], 'Kinds of findings whose pairs --write keeps; empty: none.'
)


def main(_):
  """Runs the audit given by flags, and prints the report."""
  if _CONFIG.value is None:
    raise UserError(
      '--config is missing; pass the config that names the text: --config=configs/NAME.py'
    )
  shared_flags.check_at_least(0, _EXAMPLES)
  filtering.check_kinds(_KEEP.value)
  folder = None
  if _WRITE.value is not None:
    folder = files.as_path(_WRITE.value).absolute()
    filtering.check_folder(folder)
  elif flags.FLAGS['keep'].present:
    raise UserError('--keep has no effect without --write; add --write=FOLDER')
  config = Config.from_dict(_CONFIG.value.to_dict())
  data = config.data
  splits = [*data.train, *data.valid_sets.values(), data.test]
  inputs = itertools.chain(*(split_files(data, split) for split in splits if split))
  check_output(_JSON.value, inputs, flag='json')
  is_foreign = None
  if _IDENTIFY_LANGUAGES.value:
    is_foreign = language_id.identifier([data.source_language, data.target_language])
  origin = config.train.init_from
  earlier = vocabularies.load(files.as_path(origin)) if origin else None
  audited = {}
  for name, corpus in audit(data, earlier, is_foreign):
    audited[name] = corpus
    print(*report_lines(name, corpus, _EXAMPLES.value), sep='\n', end='\n\n')
  if _JSON.value:
    outputs.write(files.as_path(_JSON.value), files.json_bytes(as_json(audited)))
  if folder is not None:
    _write(folder, audited, data)


def _write(folder: Path, audited: dict[str, AuditedCorpus], data: DataConfig):
  """Writes the dataset without findings, and prints counts and the flags for training on it."""
  filtered = filtering.filter_corpora(audited, _KEEP.value)
  settings = filtering.write(folder, filtered, data)
  print(*filtering.summary_lines(filtered), sep='\n', end='\n\n')
  print(f'{folder} contains the text, and the removed lines in {filtering.REMOVED};')
  print(f'train on it with: {shlex.join(settings)}')


start = command_line.entry_point(main)  # `attention-audit` calls it.

if __name__ == '__main__':
  start()
