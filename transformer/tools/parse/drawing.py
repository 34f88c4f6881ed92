"""Drawings of constituency trees as lines of text."""

from transformer.tools.parse.treebank import Tree, walk


def draw(tree: Tree) -> str:
  """Draws a tree with one constituent on each line; its parts are below it, and indented.

  Words that follow each other share a line, and so does a constituent with the only one it holds.
  """
  inside: list[tuple[str, list]] = [('', [])]  # Open constituents: labels and parts.
  for step, label, word in walk(tree):
    parts = inside[-1][1]
    if step == '(':
      parts.append((label, []))
      inside.append(parts[-1])
    elif step == ')':
      inside.pop()
    elif parts and isinstance(parts[-1], str):
      parts[-1] += f' {tree.words[word]}'
    else:
      parts.append(tree.words[word])
  lines = []
  # Each entry: its indent, the indent of its parts, and a constituent or words.
  ahead = [('', '', part) for part in inside[0][1]]
  while ahead:
    before, indent, part = ahead.pop()
    if isinstance(part, str):
      lines.append(f'{before}{part}')
      continue
    labels, parts = [part[0]], part[1]
    while len(parts) == 1 and not isinstance(parts[0], str):
      label, parts = parts[0]
      labels.append(label)
    words = f'  {parts.pop()}' if len(parts) == 1 else ''
    lines.append(before + ' ─ '.join(labels) + words)
    ahead += [
      (indent + ('├─ ' if number else '└─ '), indent + ('│  ' if number else '   '), part)
      for number, part in enumerate(reversed(parts))
    ]
  return '\n'.join(lines)
