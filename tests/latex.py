"""Compiles a table with LaTeX, where it is installed."""

import shutil
import subprocess

PDFLATEX = shutil.which('pdflatex')
_DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs}
\begin{document}
TABLE
\end{document}
"""


def check(table, folder):
  """Checks that a table compiles, with warnings about no character."""
  if PDFLATEX is None:
    return
  (folder / 'table.tex').write_text(_DOCUMENT.replace('TABLE', table), 'utf-8')
  done = subprocess.run(
    [PDFLATEX, '-halt-on-error', '-interaction=nonstopmode', 'table.tex'],
    cwd=folder,
    capture_output=True,
    text=True,
    timeout=100,
    check=False,
  )
  assert done.returncode == 0, done.stdout
  assert 'Missing character' not in done.stdout, done.stdout
  assert (folder / 'table.pdf').stat().st_size
