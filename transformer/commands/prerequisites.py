"""What a run needs from outside its directory, opened as training opens it, without a device."""

from transformer.config import Config
from transformer.data.corpora import open_corpora
from transformer.data.vocabulary_adoption import adopt
from transformer.evaluation.metrics import check_tokenizer
from transformer.evaluation.own_metrics import load_metric
from transformer.runs.run_directory import read_settings


def check_prerequisites(config: Config, begun: bool):
  """Opens the text, the metric and the runs that a config names; prepares and trains nothing.

  Args:
    config: the settings of a run.
    begun: whether the run has begun, and so has its vocabulary and its first parameters.

  Raises:
    UserError: one of them is missing, or cannot be read or imported.
  """
  check_tokenizer(config.decode.bleu_tokenize)
  if config.train.valid_metric:
    load_metric(config.train.valid_metric)
  for run in (*config.train.teachers, *([] if begun else [config.train.init_from])):
    if run:
      read_settings(run)
  for key in () if begun else config.data.sizes:
    if path := getattr(config.data, key):
      adopt(path)
  if not config.data.is_built_in:
    open_corpora(config.data)
