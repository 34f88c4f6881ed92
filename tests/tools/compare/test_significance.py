"""Equal systems do not differ, a better one does, and few sentences prove nothing."""

import pytest

from tests.evaluation.test_metrics import REFERENCES, TRANSLATIONS
from transformer.evaluation import metrics
from transformer.tools.compare.significance import p_values


@pytest.mark.parametrize('name', metrics.SACREBLEU_METRICS)
def test_equal_systems_do_not_differ_and_a_better_one_does(name):
  lines = TRANSLATIONS * 9
  references = REFERENCES * 9
  systems = [[lines], [lines], [references]]
  equal, better = p_values(name, systems, [references], '13a')
  assert equal == 1.0 and better < 0.01


def test_few_different_sentences_are_no_proof():
  lines = [*REFERENCES[:1], *TRANSLATIONS[1:]]
  (p,) = p_values('BLEU', [[TRANSLATIONS], [lines]], [REFERENCES], '13a')
  assert 0.05 < p < 1


def test_p_values_are_the_same_at_each_start(monkeypatch):
  one = [*TRANSLATIONS * 3, *REFERENCES * 2]
  two = [*REFERENCES * 3, *TRANSLATIONS * 2]

  def p_value(seed):
    monkeypatch.setenv('SACREBLEU_SEED', seed)
    (p,) = p_values('BLEU', [[one], [two]], [REFERENCES * 5], '13a')
    return p

  assert p_value('12345') == p_value('7') == p_value('none')


def test_seeds_are_compared_in_pairs():
  one = TRANSLATIONS * 3
  other = REFERENCES[:2] * 4 + REFERENCES[:1]
  assert p_values('BLEU', [[one, other], [other, one]], [REFERENCES * 3], '13a') == (
    p_values('BLEU', [[one + other], [other + one]], [REFERENCES * 6], '13a')
  )
