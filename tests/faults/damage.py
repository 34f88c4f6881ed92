"""Damage to files: cut, flipped, deleted and renamed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

DAMAGES = ('flip', 'cut', 'delete', 'rename')


def files_of(folder: Path) -> list[str]:
  """Returns all files in a folder and its folders, as paths in the folder."""
  return sorted(path.relative_to(folder).as_posix() for path in folder.rglob('*')
                if path.is_file())


def damaged(whole: Path, copy: Path, name: str, kind: str, positions: int) -> Iterator[str]:
  """Copies a folder, and damages one file of the copy, again and again.

  Args:
    whole: the folder, which stays as it is.
    copy: the path of the copy; an older copy is removed.
    name: the file's path in the folder.
    kind: one of `DAMAGES`.
    positions: number of positions, spread evenly, for `flip` and `cut`.

  Yields:
    A description of the damage that `copy` has at this moment.
  """
  shutil.rmtree(copy, ignore_errors=True)
  shutil.copytree(whole, copy)
  path = copy / name
  content = path.read_bytes()
  places = sorted({index * len(content) // positions for index in range(positions)}
                  | {len(content) - 1}) if content else []
  if kind == 'flip':
    for number, place in enumerate(places):
      flipped = content[place] ^ 1 << number % 8
      path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1:])
      yield f'bit {number % 8} of byte {place} of {name} flipped'
  elif kind == 'cut':
    for place in places:
      path.write_bytes(content[:place])
      yield f'{name} cut to {place} of {len(content)} bytes'
  elif kind == 'delete':
    path.unlink()
    yield f'{name} deleted'
  else:
    path.rename(path.with_name(path.name + 'x'))
    yield f'{name} renamed'
