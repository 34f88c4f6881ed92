"""The translations of each evaluation lie beside the results of `eval.py`, for the latest steps."""

from transformer.runs.validation_texts import write_translations


def test_the_latest_translations_of_each_set_are_kept(tmp_path):
  folder = tmp_path / 'eval'
  for step in (5, 10, 15, 100):
    write_translations(tmp_path, 'valid', step, [f'ü {step}', ''], keep=2)
    write_translations(tmp_path, 'valid/talks', step, ['t'], keep=3)
  others = ['valid.step5.beam4.json', 'valid.step5.beam4.sentences.jsonl', 'valid.all.9.txt']
  for name in others:
    (folder / name).touch()
  write_translations(tmp_path, 'valid', 15, ['again'], keep=2)  # The run went on from step 10.
  assert {path.name for path in folder.iterdir()} == {
      'valid.15.txt', 'valid.talks.10.txt', 'valid.talks.15.txt', 'valid.talks.100.txt', *others}
  assert (folder / 'valid.15.txt').read_text('utf-8') == 'again\n'
  write_translations(tmp_path, 'valid', 20, ['ü', ''], keep=2)
  assert (folder / 'valid.20.txt').read_text('utf-8') == 'ü\n\n'
  assert (folder / 'valid.15.txt').exists()
