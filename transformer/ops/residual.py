"""The residual connection around a sublayer, with its norm."""


def residual(x_BTD, sublayer, normalise, norm, drop=lambda y: y):
  """Returns LayerNorm(x + Sublayer(x)), section 3.1, or x + Sublayer(LayerNorm(x)).

  The second form is from Xiong et al., 2020, "On Layer Normalization in the Transformer
  Architecture". It needs one more norm after the last layer of a stack.

  Args:
    sublayer, normalise: functions from [..., T, D] to the same shape.
    norm: `post` for the norm after the sum, as published; `pre` for the norm before the
      sublayer.
    drop: dropout on the output of the sublayer (section 5.4).

  Raises:
    ValueError: `norm` is neither `post` nor `pre`.
  """
  if norm not in ('post', 'pre'):
    raise ValueError(f'norm must be post or pre; got {norm!r}')
  if norm == 'pre':
    return x_BTD + drop(sublayer(normalise(x_BTD)))
  return normalise(x_BTD + drop(sublayer(x_BTD)))
