"""What a run needs from outside its directory, opened as training opens it, without a device."""

from transformer import own_code
from transformer.config import Config
from transformer.data.corpora import open_corpora
from transformer.data.vocabulary.making import adopt
from transformer.evaluation.metrics import check_tokenizer
from transformer.runs.run_directory import read_settings
from transformer.training.objective import make_objective
from transformer.training.optimizer import make_optimizer, make_schedule


def check_prerequisites(config: Config, begun: bool):
  """Opens the text, the runs and the parts of one's own that a config names; trains nothing.

  A run that has `begun` has its vocabulary and its first parameters.
  """
  check_tokenizer(config.decode.bleu_tokenize)
  for spec, kind in config.own_code.items():
    own_code.load(spec, kind)
  make_objective(config)
  make_optimizer(config.optimizer, make_schedule(config.optimizer, config.model.model_dim,
                                                 config.train.steps))
  if config.train.init_from and not begun:
    read_settings(config.train.init_from)
  for key in () if begun else config.data.sizes:
    if path := getattr(config.data, key):
      adopt(path)
  open_corpora(config.data)
