"""The data plane: local updates, aggregation and evaluation, in JAX."""
