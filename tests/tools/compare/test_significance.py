"""Equal systems do not differ, a better one does, and few sentences prove nothing."""

import pytest
from sacrebleu.tokenizers.tokenizer_ter import TercomTokenizer

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
    assert (test['system'] < test['baseline']) == (test['metric'] == 'TER')


@pytest.mark.parametrize('changed', [1, 2, 3])
def test_few_different_sentences_are_no_proof(changed):
  # All sentences that differ gain. So the trials that swap all or none of them are as extreme, and
  # the others are less.
  lines = [*REFERENCES[:changed], *TRANSLATIONS[changed:]]
  (bleu,) = differences('BLEU', [TRANSLATIONS], [[lines]], [REFERENCES], '13a')
  assert bleu['system'] > bleu['baseline']
  assert bleu['randomisation'] == pytest.approx(2.0 ** (1 - changed), abs=0.01)


def test_all_tests_draw_by_the_seed_of_sacrebleus_variable(monkeypatch):
  one = [*TRANSLATIONS * 3, *REFERENCES * 2]
  two = [*REFERENCES * 3, *TRANSLATIONS * 2]

  def p_values(seed):
    monkeypatch.setenv('SACREBLEU_SEED', seed)
    (bleu,) = differences('BLEU', [one], [[two]], [REFERENCES * 5], '13a')
    return [bleu['bootstrap'], bleu['randomisation']]

  usual, other = p_values('12345'), p_values('7')
  assert p_values('') == usual
  assert all(p != q for p, q in zip(usual, other, strict=True)), (usual, other)


def test_ter_counts_each_system_once_for_both_tests(monkeypatch):
  counted = []
  tokenized = TercomTokenizer.__call__
  monkeypatch.setattr(
    TercomTokenizer,
    '__call__',
    lambda tokenizer, line: counted.append(line) or tokenized(tokenizer, line),
  )
  differences('TER', [TRANSLATIONS], [[REFERENCES]], [REFERENCES], '13a')
  assert [counted.count(line) for line in TRANSLATIONS] == [1, 1, 1]


def test_seeds_are_compared_in_pairs():
  one, other = TRANSLATIONS * 3, REFERENCES[:2] * 4 + REFERENCES[:1]
  assert differences('BLEU', [one, other], [[other, one]], [REFERENCES * 3], '13a') == (
    differences('BLEU', [one + other], [[other + one]], [REFERENCES * 6], '13a')
  )
