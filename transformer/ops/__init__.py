"""Pure functions on arrays: attention, masks, positions, dropout, losses, search, sampling.

Attention scores and weights, losses, rotary angles and, by default, the products of `linear.linear`
are computed in float32, whatever the type of the arguments. This includes float64: with
JAX_ENABLE_X64, their results still have the precision and range of float32.

`linear.linear`, 16-bit attention and the loss define a `jax.custom_vjp`. JAX cannot apply
forward-mode differentiation to such a function f. These products work:

- Hessian-vector: `jax.jvp(jax.grad(f), (x,), (v,))[1]`, or `jax.linearize(jax.grad(f), x)`;
- Jacobian-vector: `y, back = jax.vjp(f, x)`, then `jax.linear_transpose(back, y)((v,))[0]`.
"""
