"""German text is tokenised and split as by the script of the paper's authors."""

import itertools
import shutil
import subprocess

import pytest

from transformer.evaluation.metrics import split_compounds, tokenize_german


# The output of Moses' own tokenizer.perl in its version of 1 June 2017.
@pytest.mark.parametrize(('line', 'tokens'), [
    ('Die rot-weiße Fahne, die 5,3 Mio. kostet.', 'Die rot-weiße Fahne , die 5,3 Mio. kostet .'),
    ('"Los geht\'s", sagt Nr. 5.', '&quot; Los geht &apos; s &quot; , sagt Nr. 5.'),
    ('Das  gilt z. B. [hier] & dort …', 'Das gilt z. B. &#91; hier &#93; &amp; dort …'),
    ('Ein Mann mit Bart.', 'Ein Mann mit Bart.'),
    ('', ''),
])
def test_german_is_tokenised_as_moses_does(line, tokens):
  assert tokenize_german([line, line]) == [tokens, tokens]


@pytest.mark.parametrize(('line', 'split'), [
    ('rot-weiß', 'rot ##AT##-##AT## weiß'),
    ('Nord-Ost-See', 'Nord ##AT##-##AT## Ost ##AT##-##AT## See'),
    ('a-b-c', 'a ##AT##-##AT## b-c'),
    ('a-ö-c', 'a ##AT##-##AT## ö ##AT##-##AT## c'),
    ('a--b', 'a ##AT##-##AT## -b'),
    ('Hin- und Rückweg - ja', 'Hin- und Rückweg - ja'),
    ('-a-', '-a-'),
])
def test_hyphens_within_a_word_are_split(line, split):
  assert split_compounds(line) == split


@pytest.mark.skipif(shutil.which('perl') is None, reason='needs perl')
def test_splitting_equals_perls():
  lines = [''.join(each) for length in range(7)
           for each in itertools.product('aö- ', repeat=length)]
  rule = r's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g'
  done = subprocess.run(['perl', '-ple', rule], input='\n'.join(lines).encode() + b'\n',
                        check=True, capture_output=True)
  assert [split_compounds(line) for line in lines] == done.stdout.decode().split('\n')[:-1]
