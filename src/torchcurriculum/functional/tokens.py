"""Selects tokens by their excess loss (RHO-1, Lin et al., 2024)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["top_share"]


def top_share(scores: Tensor, counted: Tensor, share: float) -> Tensor:
    r"""The indicator :math:`I_{k\%}`: the tokens of a batch with the largest scores.

    Args:
        scores: (B, T) :math:`L_\Delta = L_\theta - L_\mathrm{ref}`.
        counted: (B, T) bool: tokens that are not ignored.
        share: k in (0, 1]; of M counted tokens, kM rounded, but at least one, are chosen; earlier ones win ties.

    Returns:
        (B, T) bool.

    Example:
        >>> scores, counted = torch.tensor([[3.0, 1.0], [2.0, 9.0]]), torch.tensor([[True, True], [True, False]])
        >>> top_share(scores, counted, share=0.6)
        tensor([[ True, False],
                [ True, False]])
    """
    places = counted.flatten().nonzero().flatten()
    order = scores.flatten()[places].argsort(descending=True, stable=True)
    chosen = torch.zeros_like(counted).flatten()
    chosen[places[order[: max(1, round(share * len(places)))]]] = True
    return chosen.view_as(counted)
