"""Everything that exists to run experiments: recipes, the trainer, networks, data sets and published figures.

Nothing in the library imports this room; ``curriculum run``, the examples and the benchmarks do.
"""
