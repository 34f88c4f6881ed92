"""MBR decoding: picks each n-best list's candidate with the highest expected utility.

  python eval.py --workdir=RUN --sample --beam_size=32 --nbest=32 --output=FILE   # 32 samples
  python -m transformer.tools.rerank --candidates=FILE --output=FILE2
  sacrebleu REFERENCE -i FILE2

Line n of the output is the choice for sentence n.
"""

from absl import flags

from transformer import files
from transformer.cli.request import check_output
from transformer.errors import UserError
from transformer.system import command_line
from transformer.system.machine import usable_cores

_CANDIDATES = flags.DEFINE_string(
  'candidates', None, 'The file that eval.py --nbest=N --output=FILE wrote.'
)
_OUTPUT = flags.DEFINE_string(
  'output', '-', 'The file for the chosen translations (default: standard output).'
)


def main(_):
  """Reads the n-best lists, and writes the choices."""
  if not _CANDIDATES.value:
    raise UserError(
      '--candidates is missing; pass the n-best lists that eval.py wrote: --candidates=FILE'
    )
  check_output(_OUTPUT.value, [_CANDIDATES.value])
  # Imported only now, so that --help and invalid flags respond immediately.
  from transformer.cli.text_lines import write_lines
  from transformer.tools.rerank.mbr import read_lists, select_by_mbr

  lists = read_lists(files.as_path(_CANDIDATES.value))
  write_lines(select_by_mbr(lists, usable_cores()), _OUTPUT.value)


start = command_line.entry_point(main)  # `attention-rerank` calls it.

if __name__ == '__main__':
  start()
