"""Optional tools built on the core; each folder can be deleted together with its tests."""
