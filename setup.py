"""Lists the packages and the optional dependencies; pyproject.toml has all other metadata.

train.py, eval.py and configs/ are installed as the package `attention_commands`. The
requirements.txt of each tool becomes the optional dependencies (extra) of the tool's name.
"""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py


class Build(build_py):
  """Excludes this file from the package."""

  def find_package_modules(
    self, package: str, package_dir: str
  ) -> list[tuple[str, str, str]]:
    modules = super().find_package_modules(package, package_dir)
    return [module for module in modules if module[1] != 'setup']


setup(
  cmdclass={'build_py': Build},
  packages=[
    'attention_commands',
    'attention_commands.configs',
    *find_packages(include=['transformer', 'transformer.*']),
  ],
  package_dir={'attention_commands': '.'},
  extras_require={
    path.parent.name: path.read_text(encoding='utf-8').splitlines()
    for path in sorted(Path('transformer/tools').glob('*/requirements.txt'))
  },
)
