"""Splits by a seed: 9:1 for CIFAR, 8:1:1 for NCI1, as in Appendix B of the paper."""

from __future__ import annotations

import torch
from torch import Tensor

from ...distributed import derive

__all__ = ["split"]


def split(n: int, seed: int, valid: float = 0.1, test: float = 0.0) -> dict[str, Tensor]:
    """Rows of the train, valid and test parts, drawn without replacement.

    Args:
        n: Rows in all.
        seed: Seed of the split; the global generators are not used.
        valid: Share of the validation part.
        test: Share of the test part; 0 if the data has its own.

    Returns:
        int64 rows by part; together they are all rows.

    Example:
        >>> {part: len(rows) for part, rows in split(4110, seed=0, valid=0.1, test=0.1).items()}
        {'train': 3288, 'valid': 411, 'test': 411}
    """
    if not 0 <= valid < 1 or not 0 <= test < 1 or valid + test >= 1:
        raise ValueError(f"valid and test must be shares that leave rows to train on, got {valid!r} and {test!r}")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(derive(seed, "split")))
    n_test, n_valid = round(test * n), round(valid * n)
    return {
        "train": order[n_test + n_valid :],
        "valid": order[n_test : n_test + n_valid],
        "test": order[:n_test],
    }
