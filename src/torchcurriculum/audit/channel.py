r"""True labels behind noisy ones: a channel from true to given labels, fitted to out-of-sample probabilities.

A network trained on noisy labels predicts noisy labels. So the model of a given label j is
:math:`\sum_k \pi_k(x) T_{kj}`, where :math:`\pi(x) = \mathrm{softmax}(a \log p(x) + b)` are the probabilities p of the
network with a temperature and a prior of their own, meant for the *true* label k, and T is the channel: a label of
class k is wrong with probability :math:`\eta_k`, and then it is j with probability :math:`O_{kj}`. All of a, b, eta and
O are fitted together, by the likelihood of the given labels with weak normal priors.

What tells wrong labels from hard rows: the surer a network is, the rarer its own mistakes, but a wrong label does not
care how sure the network is. So a share of disagreement that remains where the network is surest is noise, and
disagreement that fades as it grows surer is not. On clean data T is the identity, however hard they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["Channel", "fit_channel"]

FLOOR = 1e-4  # of a probability: what networks say below it, and float16, tell nothing
SHARPER = 2.0  # the power of the probabilities, and the temperature, that a fit starts from
RATES = (0.01, 0.6)  # between which the share of wrong labels starts
OTHERS = (-2.0, 3.0)  # and between which log O, centred, does
STEPS = 60  # of L-BFGS
CELLS = 5_000_000  # rows times classes that are fitted to; the others are judged by the fit
FEWEST = 5_000  # rows that are fitted to, however many classes there are
SPREAD = {"heat": 1.0, "prior": 1.0, "rates": 1.0, "others": 1.5}  # standard deviations of the weak priors
BLOCK = 2**14  # rows at a time


@dataclass(frozen=True)
class Channel:
    """A fitted channel.

    Attributes:
        heat: a, by which log-probabilities are multiplied; above 1 for a network that is less sure than it could be.
        prior: (C,) b, added to them.
        matrix: (C, C) T, the probability of a given label (column) for a true one (row).
    """

    heat: float
    prior: np.ndarray
    matrix: np.ndarray

    def true_shares(self, probabilities: np.ndarray) -> np.ndarray:
        """(M, C) probabilities of the true label, without a look at the given one."""
        values = self.heat * _logs(probabilities) + self.prior
        values = np.exp(values - values.max(axis=1, keepdims=True))
        shares: np.ndarray = values / values.sum(axis=1, keepdims=True)
        return shares

    def posterior(self, probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """(M, C) probabilities of the true label, with the given one known."""
        joint = self.true_shares(probabilities) * self.matrix[:, labels].T
        shares: np.ndarray = joint / joint.sum(axis=1, keepdims=True)
        return shares


def _logs(probabilities: np.ndarray) -> np.ndarray:
    values = np.log(np.clip(probabilities.astype(np.float64), FLOOR, 1.0))
    centred: np.ndarray = values - values.mean(axis=1, keepdims=True)
    return centred


def _start(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, Tensor]:
    """The rate of wrong labels and log O by counts of sharpened predictions and labels: O is often far from even."""
    classes = probabilities.shape[1]
    sharp = np.clip(probabilities.astype(np.float64), FLOOR, 1.0) ** SHARPER
    sharp /= sharp.sum(axis=1, keepdims=True)
    counts = np.stack([sharp[labels == label].sum(axis=0) for label in range(classes)], axis=1)
    away = ~np.eye(classes, dtype=bool)
    rate = float(np.median((counts * away).sum(axis=1) / counts.sum(axis=1)).clip(*RATES))
    logs = np.log((counts + 0.5 / classes) / (counts * away + 0.5 / classes).sum(axis=1, keepdims=True))
    logs -= (logs * away).sum(axis=1, keepdims=True) / (classes - 1)
    return {
        "rate": torch.tensor(math.log(rate / (1 - rate)), dtype=torch.float64),
        "others": torch.from_numpy(np.where(away, logs, 0.0).clip(*OTHERS)),
    }


def fit_channel(probabilities: np.ndarray, labels: np.ndarray) -> Channel:
    """Fits a channel to the given labels.

    Args:
        probabilities: (N, C) of networks that did not see the row.
        labels: (N,) the given ones, in ``range(C)``.

    Returns:
        The channel; where there are very many rows, fitted to a part of them drawn evenly.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> true = draw.integers(0, 2, 2000)
        >>> given = np.where(draw.random(2000) < 0.3, 1 - true, true)
        >>> sure = 0.7 - 0.2 * draw.random(2000) ** 2                      # of the true class; at most 1 - noise
        >>> p = np.stack([np.where(true == 0, sure, 1 - sure), np.where(true == 1, sure, 1 - sure)], axis=1)
        >>> [round(float(share), 2) for share in np.diag(fit_channel(p, given).matrix)]
        [0.7, 0.69]
    """
    n, classes = probabilities.shape
    most = max(FEWEST, CELLS // classes)
    if n > most:
        rows = np.linspace(0, n - 1, most).astype(np.int64)
        probabilities, labels = probabilities[rows], labels[rows]
    logs, given = torch.from_numpy(_logs(probabilities)), torch.from_numpy(labels.astype(np.int64))
    eye = torch.eye(classes, dtype=torch.bool)
    parts = {
        "heat": torch.tensor(math.log(SHARPER), dtype=torch.float64),
        "prior": torch.zeros(classes, dtype=torch.float64),
        "rates": torch.zeros(classes, dtype=torch.float64),
        **_start(probabilities, labels),
    }
    for part in parts.values():
        part.requires_grad_()

    def matrix() -> Tensor:
        wrong = torch.sigmoid(parts["rate"] + parts["rates"])[:, None]
        others = parts["others"].masked_fill(eye, -math.inf).softmax(1)
        return torch.where(eye, 1 - wrong, wrong * others)

    def objective() -> Tensor:
        true = (parts["heat"].exp() * logs + parts["prior"]).softmax(1)
        likelihood = (true * matrix().T[given]).sum(1).clamp_min(1e-12)
        priors = [(parts[name] / spread).square().sum() / 2 for name, spread in SPREAD.items()]
        return sum(priors, -likelihood.log().sum())

    optimizer = torch.optim.LBFGS(
        list(parts.values()), max_iter=STEPS, history_size=20, line_search_fn="strong_wolfe",
        tolerance_grad=1e-5 * math.sqrt(len(given)), tolerance_change=1e-7,
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = objective()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(closure)
    with torch.no_grad():
        return Channel(float(parts["heat"].exp()), parts["prior"].numpy(), matrix().numpy())
