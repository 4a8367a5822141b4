"""Losses of sequences with weighted or selected tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core import checks
from ..functional.tokens import top_share

__all__ = ["Tokens", "token_losses"]

KEYS = {"labels", "reference", "weights"}


def token_losses(logits: Tensor, labels: Tensor, shift: bool = True, ignore_index: int = -100) -> Tensor:
    """(B, T) the loss of each token, zero where it is ignored; for the reference model of ``Tokens``.

    Args:
        logits: (B, T, V).
        labels: (B, T).
        shift: Whether outputs predict the next position, as in a causal language model; the first token then has no
            loss.
        ignore_index: The label of tokens that do not count.

    Example:
        >>> token_losses(torch.zeros(1, 3, 2), torch.tensor([[0, 1, -100]]))
        tensor([[0.0000, 0.6931, 0.0000]])
    """
    logits = checks.at_least_float32(logits)
    if shift:
        logits, labels = logits[:, :-1], labels[:, 1:]
    losses = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=ignore_index, reduction="none")
    return F.pad(losses, (1, 0)) if shift else losses


class Tokens(nn.Module):
    r"""(B,) losses of sequences from the losses of their weighted or selected tokens: a ``loss_fn``.

    Their mean over the batch is :math:`\sum_t w_t I_t L_t / \sum_t w_t I_t` over all its tokens. I chooses the
    ``share`` of the batch's tokens with the largest excess loss over a reference model's (RHO-1's selective language
    modelling); the others are only context.

    Targets are a dict: ``labels`` (B, T), for a share below 1 ``reference`` (B, T) from ``token_losses`` of the
    reference model, and optionally ``weights`` (B, T), at least 0.

    Args:
        share: k in (0, 1]; 1 is every token.
        shift: Whether outputs predict the next position, as in a causal language model.
        ignore_index: The label of tokens that do not count.

    Example:
        >>> logits, labels = torch.zeros(2, 2, 4), torch.tensor([[0, 1], [2, 3]])
        >>> Tokens(share=0.5)(logits, {"labels": labels, "reference": torch.tensor([[0.0, 1.0], [0.0, 0.2]])})
        tensor([0.0000, 2.7726])

    Reference:
        Lin et al., Rho-1: Not All Tokens Are What You Need, NeurIPS 2024.
    """

    def __init__(self, share: float = 1.0, shift: bool = True, ignore_index: int = -100) -> None:
        super().__init__()
        checks.real("share", share, "(0, 1]", "1 is every token")
        self.share, self.shift, self.ignore_index = share, shift, ignore_index

    def forward(self, outputs: Tensor, y: Mapping[str, Tensor]) -> Tensor:
        """(B,) losses.

        Args:
            outputs: (B, T, V) logits.
            y: ``labels``, and ``reference`` and ``weights`` where they are needed.
        """
        self._refuse(outputs, y)
        labels, weights = y["labels"], y.get("weights")
        losses = token_losses(outputs, labels, self.shift, self.ignore_index)
        counted = labels != self.ignore_index
        if self.shift:
            counted = counted & (torch.arange(labels.shape[1], device=labels.device) > 0)
        if self.share < 1:
            counted = top_share(losses.detach() - y["reference"].to(losses), counted, self.share)
        kept = counted.to(losses.dtype) if weights is None else counted * weights.to(losses.dtype)
        whole = kept.sum()
        return (losses * kept).sum(1) * len(labels) / torch.where(whole > 0, whole, 1.0)

    def _refuse(self, outputs: Any, y: Any) -> None:
        if not isinstance(y, Mapping) or "labels" not in y:
            got = f"a dict of {', '.join(map(str, y))}" if isinstance(y, Mapping) else type(y).__name__
            raise TypeError(f"Tokens takes targets as a dict with labels (and reference, weights), got {got}")
        if ("reference" in y) != (self.share < 1):
            lacks = "needs the reference model's losses under 'reference'" if self.share < 1 else "ignores 'reference'"
            raise ValueError(f"Tokens with share={self.share:g} {lacks}; see token_losses")
        shape = tuple(y["labels"].shape)
        if not isinstance(outputs, Tensor) or outputs.ndim != 3 or tuple(outputs.shape[:2]) != shape:
            raise ValueError(
                f"Tokens takes logits (B, T, V) for labels of shape {shape}, got {checks.describe(outputs)}"
            )
        for name in KEYS & set(y):
            if tuple(y[name].shape) != shape:
                raise ValueError(f"{name} must have the shape of the labels, {shape}, got {tuple(y[name].shape)}")
