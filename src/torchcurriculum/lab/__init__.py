"""Everything for running experiments: recipes, the trainer, networks, data sets and published results.

Nothing in the library imports this room; ``curriculum run``, the examples and the benchmarks do.
"""
