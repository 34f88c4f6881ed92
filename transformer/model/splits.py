"""The mesh axes that split the Transformer's parameters."""

# For each parameter, by the last names on its path: the mesh axes that split its axes. The paths of
# an optimizer's moments end with the same names, so these rules hold for them too.
SPLITS = {
  **{(name, 'kernel'): ('fsdp', 'tensor', None) for name in ('query', 'key', 'value')},
  **{(name, 'bias'): ('tensor', None) for name in ('query', 'key', 'value')},
  **{(name, 'kernel'): ('fsdp', 'tensor') for name in ('inner', 'gate')},
  **{
    (name, 'table'): ('tensor', 'fsdp')
    for name in ('source_embedding', 'target_embedding')
  },
  ('inner', 'bias'): ('tensor',),
  ('outer', 'kernel'): ('tensor', 'fsdp'),
  ('output', 'kernel'): ('tensor', None, 'fsdp'),
  ('output',): ('tensor', 'fsdp'),
  ('output_bias',): ('tensor',),
}
