"""Minimum Bayes risk: the candidate that is most like all candidates of its sentence."""

import collections
import functools
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from transformer.decoding.translator import Translation
from transformer.evaluation.metrics import sentence_utility

# Sentences in a task of a process.
_TOGETHER = 8


def choose(answers: Sequence[Translation], utility: str, tokenize: str,
           processes: int) -> list[Translation]:
  """Replaces each translation by its candidate of the highest expected utility.

  The expectation is over the candidates themselves, each as likely as it is often (Eikema and Aziz,
  2022, "Sampling-Based Approximations to Minimum Bayes Risk Decoding for Neural Machine
  Translation", equation 6). For samples, this estimates the expectation under the model. An n-best
  list counts each of its hypotheses once.

  Args:
    answers: the candidates are their n-best lists.
    utility, tokenize: the name of a metric and BLEU's tokenizer, as in `metrics.sentence_utility`.
    processes: number of processes that compute utilities; each takes a second to start.

  Returns:
    The translations with their model scores. Of equal candidates, the one that is first.
  """
  lists = [[text for text, _ in answer.nbest] for answer in answers]
  find = functools.partial(_best, utility, tokenize)
  if processes == 1 or len(lists) <= _TOGETHER:
    chosen = list(map(find, lists))
  else:
    # Spawned, because JAX has threads, which a fork would not survive.
    with ProcessPoolExecutor(processes, multiprocessing.get_context('spawn')) as pool:
      chosen = list(pool.map(find, lists, chunksize=_TOGETHER))
  return [answer._replace(text=answer.nbest[index][0], score=answer.nbest[index][1],
                          nbest=(answer.nbest[index],)) if answer.nbest else answer
          for answer, index in zip(answers, chosen, strict=True)]


def _best(utility: str, tokenize: str, candidates: Sequence[str]) -> int:
  """Returns the index of the candidate with the highest expected utility; 0 if there are none."""
  counts = collections.Counter(candidates)
  if len(counts) < 2:
    return 0
  of = sentence_utility(utility, tokenize)
  expected = {text: sum(count * of(text, other) for other, count in counts.items())
              for text in counts}
  return candidates.index(max(counts, key=expected.__getitem__))
