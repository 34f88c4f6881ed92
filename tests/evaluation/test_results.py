"""Results are identified by their fields, and none replaces the result of another run or corpus."""

import hashlib
import io
import platform
import types
from types import MappingProxyType

import numpy as np
import pytest

from transformer.config import Config
from transformer.decoding.config import DecodeOptions
from transformer.decoding.translator import Translation
from transformer.errors import UserError
from transformer.evaluation import report, results
from transformer.evaluation.eval_sets import EvalSet

TEXT = EvalSet('test', ['a b c d'], [['w x y z']])


def result(folder, *runs, text=TEXT, more=MappingProxyType({}), **decode):
  """Returns a result of runs, each a folder and its steps."""
  members = [
    types.SimpleNamespace(
      workdir=folder / name, checkpoint_steps=steps, config=Config()
    )
    for name, *steps in runs
  ]
  decoding = DecodeOptions(seed=3, **decode)
  return results.new_result(
    folder / 'results', results.metadata(text, members, decoding, **more)
  )


def test_a_result_has_versions_and_the_digest_of_each_checkpoint(tmp_path):
  for step, content in (4, b'{"step": 4}'), (5, b'{"step": 5}'):
    folder = tmp_path / 'a' / 'checkpoints' / str(step)
    folder.mkdir(parents=True)
    (folder / 'digests.json').write_bytes(content)
  content = result(tmp_path, ('a', 4, 5), ('gone', 7)).content
  assert content['checkpoints_sha256'] == [
    hashlib.sha256(content).hexdigest() for content in (b'{"step": 4}', b'{"step": 5}')
  ]
  assert content['ensemble_checkpoints_sha256'] == [
    [None]
  ]  # A run in training removes old ones.
  assert content['python'] == platform.python_version()
  assert content['packages']['numpy'] == np.__version__


@pytest.mark.parametrize(
  ('runs', 'decode', 'name'),
  [
    ([('a', 5)], {}, 'step5.beam4.alpha0.6'),
    (
      [('a', 4, 5)],
      {'dtype': 'bfloat16'},
      'step5.average2.beam4.alpha0.6.dtypebfloat16',
    ),
    (
      [('a', 5)],
      {'sample': True, 'top_p': 0.5},
      'step5.samples4.alpha0.6.temperature1.top_k0.top_p0.5.seed3',
    ),
  ],
)
def test_a_result_has_its_settings_in_its_name_and_is_found_by_its_fields(
  tmp_path, runs, decode, name
):
  written = result(tmp_path, *runs, **decode)
  assert written.path.name == f'test.{name}.json'
  written.write(
    {'metrics': []}, [{'source': 'a', 'references': [], 'translation': 'b'}]
  )
  written.path.with_name('test.step1.odd.json').write_text(
    written.path.read_text('utf-8').replace('"test"', '"test.step1"'), 'utf-8'
  )
  (read,) = results.read_results(tmp_path / 'results', 'test')
  assert (read.name, read.decoding) == (name, written.decoding)
  assert read.read_sentences()[0]['translation'] == 'b'


def test_ensembles_of_other_checkpoints_and_constraints_have_separate_results(
  tmp_path,
):
  names = {
    result(tmp_path, ('a', 5), ('b', *steps)).name for steps in ([5], [4, 5], [6])
  }
  assert len(names) == 3 and all(name.startswith('step5.ensemble2.') for name in names)
  more = [
    result(
      tmp_path, ('a', 5), bleu_tokenize='zh', more={'prefix': lines, 'avoid': []}
    ).content['more']
    for lines in (['a'], ['b'])
  ]
  assert (
    more[0] != more[1]
    and [list(digests) for digests in more] == [['prefix', 'bleu']] * 2
  )


@pytest.mark.parametrize('search', ['m:f', ('m:f', 0.5), ('m:f', {'penalty': 0.5})])
def test_a_search_is_found_by_its_settings(tmp_path, search):
  written = result(tmp_path, ('a', 5), search=search)
  written.write({'metrics': []})
  (read,) = results.read_results(tmp_path / 'results', 'test')
  assert read.variant == written.variant and 'search' in read.variant


@pytest.mark.parametrize(
  ('run', 'text', 'problem'),
  [
    ('b', TEXT, 'the result of a different run'),
    ('a', TEXT._replace(sources=['b']), 'the result of a different text'),
  ],
)
def test_a_result_that_came_meanwhile_is_not_replaced(tmp_path, run, text, problem):
  first, second = result(tmp_path, ('a', 5)), result(tmp_path, (run, 5), text=text)
  first.write({'score': 1}, [{'score': 2}])
  before = {path: path.read_bytes() for path in first.path.parent.iterdir()}
  assert len(before) == 2
  for sentences in ([{'score': 3}], None):
    with pytest.raises(UserError, match=problem):
      second.write({'score': 3}, sentences)
  assert {path: path.read_bytes() for path in before} == before
  first.write({'score': 4}, [{'score': 5}])
  assert all(path.read_bytes() != content for path, content in before.items())


def test_scores_that_cannot_be_kept_are_printed(tmp_path):
  (tmp_path / 'results').write_text('no folder', encoding='utf-8')
  stages = report.evaluate(TEXT, [Translation('w x y z', -1.0, False, ())], 1.0, '13a')
  with pytest.raises(UserError):
    report.write_and_print(result(tmp_path, ('a', 5)), stages, stream := io.StringIO())
  assert 'test: 1 sentences' in stream.getvalue() and '  BLEU ' in stream.getvalue()
