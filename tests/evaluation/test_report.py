"""Tests of reports: what is printed and written of scores."""

import types

from transformer.evaluation import report, results
from transformer.evaluation.texts import Text
from transformer.inference.config import DecodeConfig


def test_a_plot_that_cannot_be_drawn_costs_the_table_nothing_and_is_not_announced(
    tmp_path, monkeypatch, capsys):
  def fail(*_):
    raise RuntimeError('no fonts')

  monkeypatch.setattr(report, 'draw_scores', fail)
  place = results.Place(tmp_path, 'test.all', {'beam': '4'})
  table = report.Table(place, Text('test', ['a'], [['b']]),
                       [{'step': 5, 'BLEU': 20.0, 'BLEU_interval_95': [10.0, 30.0]}])
  report.print_table(table, types.SimpleNamespace(workdir=tmp_path, steps=[5]),
                     results.Decoding(DecodeConfig(), 0, []))
  out = capsys.readouterr().out
  assert '20.00' in out and f'also in {tmp_path}/test.all.beam4.json\n' in out
  assert [path.name for path in tmp_path.iterdir()] == ['test.all.beam4.json']
