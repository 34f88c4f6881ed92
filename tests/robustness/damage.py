"""Damage to files: truncated, flipped, deleted and renamed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

DAMAGES = ('flip', 'truncate', 'delete', 'rename')


def files_of(folder: Path) -> list[str]:
  """Returns all files in a folder and its folders, as paths in the folder."""
  return sorted(
    path.relative_to(folder).as_posix() for path in folder.rglob('*') if path.is_file()
  )


def damaged(
  whole: Path, copy: Path, name: str, kind: str, positions: int
) -> Iterator[str]:
  """Copies a folder, and damages a file of the copy again and again; yields what was done.

  `flip` and `truncate` are tried at N positions, spread evenly, and at the last byte.
  """
  shutil.rmtree(copy, ignore_errors=True)
  shutil.copytree(whole, copy)
  path = copy / name
  content = path.read_bytes()
  if kind == 'delete':
    path.unlink()
    yield f'{name} deleted'
  elif kind == 'rename':
    path.rename(path.with_name(path.name + 'x'))
    yield f'{name} renamed'
  else:
    places = {index * len(content) // positions for index in range(positions)}
    for number, place in enumerate(
      sorted(places | {len(content) - 1}) if content else ()
    ):
      rest = bytes([content[place] ^ 1 << number % 8]) + content[place + 1 :]
      path.write_bytes(content[:place] + (rest if kind == 'flip' else b''))
      yield f'{name}: {kind} at byte {place} of {len(content)}'
