"""The encoder and the decoder may have different depths."""

import chex

from transformer.model.attention_weights import attention_weights


def test_stacks_may_be_of_different_depths(build, batch):
  tiny = build(num_layers=1, decoder_layers=3)
  depths = {stack: sum(name.startswith(f'{stack}_') and name[8:].isdigit() for name in tiny.params)
            for stack in ('encoder', 'decoder')}
  assert depths == {'encoder': 1, 'decoder': 3}
  weights = attention_weights(tiny.model, tiny.params, *batch)
  assert weights.encoder.shape[0] == 1
  assert weights.decoder.shape[0] == weights.cross.shape[0] == 3
  chex.assert_tree_all_finite(tiny.forward(tiny.params, *batch))
