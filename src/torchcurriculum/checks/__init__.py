"""Checks of what users pass in: losses, indices and knobs. Errors say what was passed and what to do."""

from .arguments import Guarded, OtherKnobs, check_types, fits, forwards, plain
from .knobs import FLOATS, class_counts, describe, map_leaves, one_of, real, row_values, suggest, whole
from .losses import (
    HALVES,
    NAN_LOSS,
    NanStrategy,
    all_finite,
    at_least_float32,
    check_class_targets,
    check_index,
    check_losses,
    check_sample_losses,
    check_task,
    check_weights,
    losses_of,
)

__all__ = [
    "FLOATS",
    "HALVES",
    "NAN_LOSS",
    "Guarded",
    "NanStrategy",
    "OtherKnobs",
    "all_finite",
    "at_least_float32",
    "check_class_targets",
    "check_index",
    "check_losses",
    "check_sample_losses",
    "check_task",
    "check_types",
    "check_weights",
    "class_counts",
    "describe",
    "fits",
    "forwards",
    "losses_of",
    "map_leaves",
    "one_of",
    "plain",
    "real",
    "row_values",
    "suggest",
    "whole",
]
