"""The network's probabilities for every training row over a run, for the label audit."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ..functional.noise import ROWS, fit_populations, label_log_odds

__all__ = ["Predictions"]


class Predictions(nn.Module):
    r"""Averages each row's probabilities over the epochs of a run, in the memory of two of them.

    Epochs are not equally informative: at first the network knows nothing, and in the end it may have memorised every
    wrong label. If the losses of two consecutive epochs form two populations, the epoch counts by the square of the
    contrast (see ``functional.noise``), and other epochs do not count. If there are never two populations, epochs count
    by the square of the variance over the rows of the probability of the given label.

    Args:
        labels: (N,) the labels trained on.
        classes: C.

    Example:
        >>> predictions = Predictions(torch.tensor([0, 1]), classes=2)
        >>> predictions.note(torch.tensor([[0.0, 0.0], [0.0, 0.0]]))                # all equal: it does not count
        >>> predictions.note(torch.tensor([[3.0, 0.0], [2.0, 0.0]]), best=True)     # the second label looks wrong
        >>> arrays = predictions.arrays()
        >>> sorted(arrays), arrays["predicted"].tolist(), arrays["mean_probabilities"].round(2).tolist()[1]
        (['mean_probabilities', 'predicted', 'probabilities'], [0, 0], [0.8798828125, 0.1199951171875])
    """

    labels: Tensor
    total: Tensor
    weight: Tensor
    visible: Tensor
    last: Tensor
    best: Tensor

    def __init__(self, labels: Tensor, classes: int) -> None:
        super().__init__()
        if labels.ndim != 1 or not len(labels) or labels.min() < 0 or labels.max() >= classes:
            raise ValueError(f"labels must be of shape (N,) and lie in range({classes}), got {tuple(labels.shape)}")
        self.register_buffer("labels", labels.clone(), persistent=False)
        self.register_buffer("total", torch.zeros(len(labels), classes, device=labels.device))
        self.register_buffer("weight", torch.zeros((), dtype=torch.float64))
        self.register_buffer("visible", torch.zeros((), dtype=torch.bool))
        self.register_buffer("last", torch.zeros((), dtype=torch.float64))
        self.register_buffer("best", torch.zeros(len(labels), classes, dtype=torch.float16, device=labels.device))

    @torch.no_grad()
    def note(self, logits: Tensor, best: bool = False) -> None:
        """Adds an epoch.

        Args:
            logits: (N, C) the network's outputs for all training rows, in evaluation mode.
            best: Whether this is the best epoch so far by whatever selects the model.
        """
        if logits.shape != self.total.shape:
            raise ValueError(f"logits must be of shape {tuple(self.total.shape)}, got {tuple(logits.shape)}")
        shares = logits.float().softmax(1)
        given = shares.gather(1, self.labels[:, None])[:, 0]
        now = torch.zeros(())
        if len(given) >= ROWS:
            now = fit_populations(label_log_odds(-given.clamp_min(1e-30).log())).contrast
        contrast = min(float(now), float(self.last))  # early on, a network may miss a class for one epoch
        self.last.copy_(now)
        if contrast and not self.visible:
            self.total.zero_()
            self.weight.zero_()
            self.visible.fill_(True)
        weight = (contrast if self.visible else float(given.double().var(correction=0))) ** 2
        self.total += weight * shares
        self.weight += weight
        if best:
            self.best.copy_(shares)

    def arrays(self) -> dict[str, np.ndarray]:
        """For ``record.set_array``: probabilities of the best epoch, their mean over the run, and the labels predicted.

        Returns:
            ``probabilities`` and ``mean_probabilities``, (N, C) float16, and ``predicted``, (N,) int64: the label of
            the highest mean if there were two populations, else that of the best epoch. Arrays without an epoch are
            left out.
        """
        found = {}
        mean = (self.total / self.weight.clamp_min(1e-30)).half().cpu()
        best = self.best.cpu()
        if bool(self.best.any()):
            found["probabilities"] = best.numpy()
        if self.weight > 0:
            found["mean_probabilities"] = mean.numpy()
        chosen = mean if self.visible or "probabilities" not in found else best
        if found:
            found["predicted"] = chosen.float().argmax(1).numpy()
        return found
