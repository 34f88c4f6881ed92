"""Random trees, and sequences that are no trees, for tests."""

from transformer.tools.parse.treebank import TOP, Bracket, Tree

LABELS = ('S', 'NP', 'VP', 'ADVP', 'PRT', 'PP', 'X')
TAGS = ('NN', 'DT', ',', '.', '``', ':', '-LRB-')


def random_tree(random, most=11):
  """A tree of up to `most` words, with unary chains and words next to constituents."""
  words = random.randint(1, most)
  spans = {(0, words)}
  for _ in range(random.randint(0, 2 * words)):
    start, stop = sorted(random.sample(range(words + 1), 2))
    if all(
      stop <= one
      or two <= start
      or (one <= start and stop <= two)
      or (start <= one and two <= stop)
      for one, two in spans
    ):
      spans.add((start, stop))
  brackets = [
    Bracket(random.choice(LABELS), *span)
    for span in sorted(spans)
    for _ in range(random.choice((1, 1, 1, 2, 3)))
  ]
  brackets.sort(key=lambda bracket: (bracket.start, -bracket.stop))
  if (
    random.random() < 0.1
    and sum(bracket[1:] == (0, words) for bracket in brackets) == 1
  ):
    brackets[0] = brackets[0]._replace(label=TOP)
    if len(brackets) > 1 and brackets[1][1:] == (0, words):
      brackets[0] = brackets[0]._replace(label='S')
  return Tree(
    tuple(f'w{index}' for index in range(words)),
    tuple(random.choices(TAGS, k=words)),
    tuple(brackets),
  )


def random_text(random, most=31):
  """Tokens of linearized trees, and others, in any order."""
  tokens = [
    'XX',
    'XX',
    'XX',
    *(step + label for label in ('S', 'NP', 'VP') for step in '()'),
    '(',
    ')',
    '()',
    'NP',
    '(NPXX',
    '⁇',
    '((',
    ')S(',
  ]
  return ' '.join(random.choices(tokens, k=random.randint(0, most)))


def deep_tree(depth, label='S'):
  """A chain of constituents in one another, with a word in each."""
  return Tree(
    tuple(f'w{index}' for index in range(depth)),
    ('NN',) * depth,
    tuple(Bracket(label, index, depth) for index in range(depth)),
  )
