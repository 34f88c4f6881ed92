"""The connection around a sublayer."""

PLACES = ('post', 'pre')


def residual(x_BTD, sublayer, normalise, place, drop=lambda y: y):
  """LayerNorm(x + Sublayer(x)), section 3.1, or x + Sublayer(LayerNorm(x)).

  A Transformer block is one around self-attention and another around the
  feed-forward sublayer; a decoder's has one around attention to the source between
  them. With the norm before the sublayer (Xiong et al., 2020, "On Layer
  Normalization in the Transformer Architecture") a stack adds one more at its end.

  Args:
    x_BTD: what goes in.
    sublayer: a function of [..., T, D] to the same shape.
    normalise: the norm, likewise.
    place: `post`, the norm after the sum, as published; or `pre`.
    drop: dropout on what the sublayer gives (section 5.4).

  Returns:
    [..., T, D].

  Raises:
    ValueError: there is no such place.
  """
  if place not in PLACES:
    raise ValueError(f'place must be one of {", ".join(PLACES)}; got {place!r}')
  if place == 'pre':
    return x_BTD + drop(sublayer(normalise(x_BTD)))
  return normalise(x_BTD + drop(sublayer(x_BTD)))
