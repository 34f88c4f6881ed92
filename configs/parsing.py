r"""English constituency parsing (section 6.3 of the paper): from words to bracketed trees.

  python train.py --config=configs/parsing.py --workdir=runs/parsing --config.data.dir=DIR
  python eval.py --workdir=runs/parsing --metric=transformer.tools.parse.scores:evalb
  python train.py --config=configs/parsing.py:cpu --workdir=runs/parsing-cpu --config.data.dir=DIR
  python eval.py --workdir=runs/parsing-cpu --metric=transformer.tools.parse.scores:evalb

DIR contains train.mrg, dev.mrg and test.mrg: trees in Penn Treebank brackets. docs/parsing.md
explains how trees are read and scored.

| config | machine | model |
| --- | --- | --- |
| parsing.py | accelerator | base model with 4 layers, model_dim 1,024, vocabulary 16,000 |
| parsing.py:cpu | two cores | 4 layers, model_dim 128, rotary positions, Muon, in-order trees |

The first config follows the paper's WSJ-only setting: sections 2 to 21 (about 40,000 sentences),
dropout on attention weights and residuals, beam size 21, α 0.3, and a maximum output length of
source length + 300. The paper reports an F1 of 91.3 on section 23. The paper does not report
dropout rates or the number of training steps for parsing; this config uses the base model's values.
The treebank (LDC99T42) requires a license, so this config has not been trained and has no score. In
the treebank's folder parsed/mrg/wsj, run:

  cat 0[2-9]/*.mrg 1?/*.mrg 20/*.mrg 21/*.mrg > DIR/train.mrg
  cat 22/*.mrg > DIR/dev.mrg && cat 23/*.mrg > DIR/test.mrg

`cpu` is for a treebank of about ten thousand sentences, such as GUM
(https://github.com/amir-zeldes/gum, with splits). On GUM's test split, F1 is 80.16, and 82.27 on
sentences of at most 40 words (dev: 81.02 and 83.31). docs/results.md has the training time.
"""

from configs import base
from transformer.errors import UserError

# The labels of the Penn Treebank. A bracket, its label and the preceding space become one token.
_LABELS = (
  'NP VP S PP SBAR ADVP ADJP INTJ PRN WHADVP WHNP PRT SQ FRAG QP NX SBARQ SINV CONJP WHPP '
  'UCP NAC WHADJP X TOP RRC LST'
)


def get_config(size: str = 'paper'):
  """Returns the config of a size.

  Raises:
    UserError: the size is neither `paper` nor `cpu`.
  """
  if size not in ('paper', 'cpu'):
    raise UserError(
      f'configs/parsing.py takes paper or cpu, such as configs/parsing.py:cpu; got {size!r}'
    )
  config = base.get_config()
  config.data.source = 'transformer.tools.parse.source:Trees'
  config.data.dir = 'data/treebank'
  config.data.train = ('train',)
  config.data.valid = 'dev'
  config.data.test = 'test'
  config.data.source_language = 'words'
  config.data.target_language = 'trees'

  config.model.num_layers = 4
  config.train.valid_metric = 'transformer.tools.parse.scores:f1'
  config.train.best_by = 'f1'
  config.decode.alpha = 0.3
  config.decode.bleu_tokenize = 'none'
  if size == 'paper':
    config.data.vocabulary_size = 16_000
    config.data.max_length = 512
    config.model.model_dim = 1024
    config.model.attention_dropout = 0.1
    config.train.steps = 100_000
    config.train.eval_every = 2000
    config.train.checkpoint_every = 1000
    config.decode.beam_size = 21
    config.decode.max_extra_length = 300
  else:
    config.data.vocabulary_size = 4000
    config.data.max_length = 256
    config.data.source = 'transformer.tools.parse.source:TreesInOrder'
    config.data.user_defined_symbols = tuple(
      f'▁{bracket}'
      for label in _LABELS.split()
      for bracket in (f'{label}(', f'){label}')
    )
    config.model.model_dim = 128
    config.model.ff_dim = 512
    config.model.num_heads = 4
    config.model.dropout = 0.2
    config.model.norm_position = 'pre'
    config.model.positions = 'rotary'
    config.optimizer.algorithm = 'muon'
    config.optimizer.weight_decay = 0.1
    config.optimizer.schedule = 'cosine'
    config.optimizer.peak_learning_rate = 7e-3
    config.optimizer.warmup_steps = 200
    config.train.steps = 6000
    config.train.tokens_per_batch = 3840
    config.train.ema_decay = 0.997
    config.train.log_every = 50
    config.train.eval_every = 400
    config.train.checkpoint_every = 400
    config.decode.beam_size = 5
    config.decode.max_extra_length = 150
  return config
