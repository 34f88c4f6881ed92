"""Equal systems do not differ, a better one does, and few sentences prove nothing."""

import pytest

from tests.evaluation.test_metrics import REFERENCES, TRANSLATIONS
from transformer.evaluation import metrics
from transformer.tools.compare.significance import differences


def all_differences(baseline, system, references):
  return [
    differences(name, baseline, [system], references, '13a')[0]
    for name in metrics.NAMES
  ]


def test_equal_systems_do_not_differ_and_a_better_one_does():
  lines, references = TRANSLATIONS * 9, REFERENCES * 9
  for test in all_differences([lines], [lines], [references]):
    assert (
      test['baseline'] == test['system']
      and test['bootstrap'] == test['randomisation'] == 1
    )
  for test in all_differences([lines], [references], [references]):
    assert test['bootstrap'] < 0.01 and test['randomisation'] < 0.01
    assert test['system'] > test['baseline']


@pytest.mark.parametrize('changed', [1, 2, 3])
def test_few_different_sentences_are_no_proof(changed):
  # All sentences that differ gain. So the trials that swap all or none of them are as extreme, and
  # the others are less.
  lines = [*REFERENCES[:changed], *TRANSLATIONS[changed:]]
  (bleu,) = differences('BLEU', [TRANSLATIONS], [[lines]], [REFERENCES], '13a')
  assert bleu['system'] > bleu['baseline']
  assert bleu['randomisation'] == pytest.approx(2.0 ** (1 - changed), abs=0.01)


def test_p_values_are_the_same_at_each_start(monkeypatch):
  one = [*TRANSLATIONS * 3, *REFERENCES * 2]
  two = [*REFERENCES * 3, *TRANSLATIONS * 2]

  def p_values(seed):
    monkeypatch.setenv('SACREBLEU_SEED', seed)
    (bleu,) = differences('BLEU', [one], [[two]], [REFERENCES * 5], '13a')
    return [bleu['bootstrap'], bleu['randomisation']]

  assert p_values('12345') == p_values('7') == p_values('none')


def test_seeds_are_compared_in_pairs():
  one, other = TRANSLATIONS * 3, REFERENCES[:2] * 4 + REFERENCES[:1]
  assert differences('BLEU', [one, other], [[other, one]], [REFERENCES * 3], '13a') == (
    differences('BLEU', [one + other], [[other + one]], [REFERENCES * 6], '13a')
  )
