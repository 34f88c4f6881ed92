"""The paper's BLEU for German equals a computation by hand."""

import pytest

from transformer.tools.compound_split import bleu, split_compounds


def test_compounds_count_by_their_parts():
  # The tokens are: Sie sah die rot ##AT##-##AT## grüne Fahne . Only grüne is wrong. It is in 1 of
  # 8 unigrams, 2 of 7 bigrams, 3 of 6 and 3 of 5. So BLEU⁴ = 7/8 · 5/7 · 3/6 · 2/5 = 1/8.
  found = bleu(
    [''], ['Sie sah die rot-grüne Fahne.'], [['Sie sah die rot-weiße Fahne.']]
  )
  assert found == {'compound-split': pytest.approx(100 * (1 / 8) ** 0.25)}
  # There is no smoothing.
  assert bleu([''], ['Eine rot-weiße Fahne.'], [['Eine Fahne.']]) == {
    'compound-split': 0
  }


@pytest.mark.parametrize(
  ('line', 'split'),
  [
    ('rot-weiß', 'rot ##AT##-##AT## weiß'),
    ('Nord-Ost-See', 'Nord ##AT##-##AT## Ost ##AT##-##AT## See'),
    ('a-b-c', 'a ##AT##-##AT## b-c'),
    ('a-ö-c', 'a ##AT##-##AT## ö ##AT##-##AT## c'),
    ('a--b', 'a ##AT##-##AT## -b'),
    ('Hin- und Rückweg - ja', 'Hin- und Rückweg - ja'),
    ('-a-', '-a-'),
  ],
)
def test_hyphens_within_a_word_are_split(line, split):
  assert split_compounds(line) == split
