"""Pure functions on arrays: attention, masks, positions, dropout, losses, search, sampling.

Scores, weights of attention, losses and angles of JAX's arrays are float32, whatever the type of
the arguments. For float64, too: with JAX_ENABLE_X64 a result then has the accuracy and the range of
float32.

`linear.linear`, attention of 16 bits and the loss have gradients of their own, `jax.custom_vjp`.
JAX cannot differentiate such a function f forwards. It can do so with its gradient:

- the Hessian times v: `jax.jvp(jax.grad(f), (x,), (v,))[1]`, or `jax.linearize(jax.grad(f), x)`;
- the Jacobian times v: `y, back = jax.vjp(f, x)`, then `jax.linear_transpose(back, y)((v,))[0]`.
"""
