"""Drawings of constituency trees as lines of text."""

from transformer.tools.parse.treebank import Tree, walk


def draw(tree: Tree) -> str:
  """Draws a tree with one constituent on each line; its parts are below it, and indented.

  Words that follow each other share a line, and so does a constituent with the only one it holds.
  """
  parts, lines = _parts(tree), []
  # Each entry: its indent, the indent of its parts, and the index of a constituent or words.
  ahead = [('', '', 0)] if tree.brackets else []
  while ahead:
    before, indent, part = ahead.pop()
    if isinstance(part, str):
      lines.append(f'{before}{part}')
      continue
    labels, inside = [tree.brackets[part].label], parts[part]
    while len(inside) == 1 and not isinstance(inside[0], str):
      labels.append(tree.brackets[inside[0]].label)
      inside = parts[inside[0]]
    words = f'  {inside.pop()}' if len(inside) == 1 else ''
    lines.append(before + ' ─ '.join(labels) + words)
    ahead += [(indent + ('├─ ' if number else '└─ '), indent + ('│  ' if number else '   '), part)
              for number, part in enumerate(reversed(inside))]
  return '\n'.join(lines)


def _parts(tree: Tree) -> list[list[int | str]]:
  """Returns what each constituent holds: others by index, and words that follow each other."""
  parts, inside = [], []
  for step, _, word in walk(tree):
    around = parts[inside[-1]] if inside else []
    if step == '(':
      around.append(len(parts))
      inside.append(len(parts))
      parts.append([])
    elif step == ')':
      inside.pop()
    elif around and isinstance(around[-1], str):
      around[-1] += f' {tree.words[word]}'
    else:
      around.append(tree.words[word])
  return parts
