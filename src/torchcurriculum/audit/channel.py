r"""True labels behind noisy ones: a channel from true to given labels, fitted to out-of-sample probabilities.

A network trained on noisy labels predicts noisy labels. So the model of a given label j is
:math:`\sum_k \pi_k(x) T_{kj}`, where :math:`\pi(x) = \mathrm{softmax}(a \log p(x) + b)` are the probabilities p of the
network with a temperature and a prior of their own, meant for the *true* label k, and T is the channel: a label of
class k is wrong with probability :math:`\eta_k`, and then it is j with probability :math:`O_{kj}`. All of a, b, eta and
O are fitted together, by the likelihood of the given labels with weak normal priors.

No temperature corrects wrong labels that all go to one class: p is (0.6, 0.4) even for rows whose true label is
certain. So the channel is fitted a second time, to probabilities from which an estimate of T was unfolded (Richardson
1972, Lucy 1974). The estimate uses the given labels of the rows with the most confident predictions (Patrini et al.
2017). The second fit is used if its likelihood is clearly higher.

Wrong labels differ from hard rows: a network's own mistakes become rarer with its confidence, wrong labels do not. So
disagreement that remains at the highest confidence is noise. On clean data T is the identity, even for hard rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

__all__ = ["Channel", "fit_channel"]

FLOOR = 1e-4  # of a probability; smaller ones are not informative, and float16 cannot hold them
SUREST = 0.2  # share of the rows of a predicted class, the most confident
FEW = 4.0  # prior rows: the share of wrong labels of a small class is drawn to that of all
ROUNDS = 20  # of Richardson's and Lucy's iteration
CLEARLY = 15.0  # gain of the log-likelihood from which on the second fit is used
SHARPER = 2.0  # the temperature that a fit starts from
RATES = (0.01, 0.6)  # limits of the share of wrong labels at the start of a fit
OTHERS = (-2.0, 3.0)  # limits of the centred log O at the start of a fit
STEPS = 60  # of L-BFGS
CELLS = 5_000_000  # rows times classes to fit; larger sets are thinned
FEWEST = 5_000  # rows to fit for any number of classes
SPREAD = {"heat": 1.0, "prior": 1.0, "rates": 1.0, "others": 1.5}  # standard deviations of the weak priors
BLOCK = 2**14  # rows at a time


@dataclass(frozen=True)
class Channel:
    """A fitted channel.

    Attributes:
        heat: a, the factor of the log-probabilities; above 1 for an underconfident network.
        prior: (C,) b, added to them.
        matrix: (C, C) T, the probability of a given label (column) for a true one (row).
        blur: (C, C) a channel that is unfolded from the probabilities first, or None.
    """

    heat: float
    prior: np.ndarray
    matrix: np.ndarray
    blur: np.ndarray | None = None

    def true_shares(self, probabilities: np.ndarray) -> np.ndarray:
        """(M, C) probabilities of the true label, without using the given one."""
        plain = probabilities if self.blur is None else _unfold(probabilities, self.blur)
        values = self.heat * _logs(plain) + self.prior
        values = np.exp(values - values.max(axis=1, keepdims=True))
        shares: np.ndarray = values / values.sum(axis=1, keepdims=True)
        return shares

    def posterior(self, probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """(M, C) probabilities of the true label, given the label in the data."""
        joint = self.true_shares(probabilities) * self.matrix[:, labels].T
        shares: np.ndarray = joint / joint.sum(axis=1, keepdims=True)
        return shares


def _logs(probabilities: np.ndarray) -> np.ndarray:
    values = np.log(np.clip(probabilities.astype(np.float64), FLOOR, 1.0))
    centred: np.ndarray = values - values.mean(axis=1, keepdims=True)
    return centred


def _anchors(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(C, C) the channel if the most confident predictions were right."""
    classes, predicted = probabilities.shape[1], probabilities.argmax(axis=1)
    order = np.lexsort((-probabilities.max(axis=1), predicted))
    of = np.bincount(predicted)
    place = np.arange(len(order)) - np.repeat(np.cumsum(of) - of, of)  # within the predicted class
    rows = order[place < np.ceil(SUREST * np.repeat(of, of))]
    counts = np.zeros((classes, classes))
    np.add.at(counts, (predicted[rows], labels[rows]), 1.0)
    away = counts * (1 - np.eye(classes))
    wrong = (away.sum(axis=1) + FEW * away.sum() / counts.sum()) / (counts.sum(axis=1) + FEW)
    wrong, away = wrong.clip(FLOOR, 1 - FLOOR), away + 0.5 / classes * (1 - np.eye(classes))
    matrix: np.ndarray = np.diag(1 - wrong) + wrong[:, None] * away / away.sum(axis=1, keepdims=True)
    return matrix


def _unfold(probabilities: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """(M, C) the probabilities before the channel ``matrix``, by Richardson's and Lucy's iteration."""
    blurred = np.clip(probabilities.astype(np.float64), FLOOR, 1.0)
    blurred /= blurred.sum(axis=1, keepdims=True)
    shares = blurred
    for _ in range(ROUNDS):
        shares = shares * ((blurred / np.maximum(shares @ matrix, 1e-12)) @ matrix.T)
        shares /= shares.sum(axis=1, keepdims=True)
    return shares


def fit_channel(probabilities: np.ndarray, labels: np.ndarray) -> Channel:
    """Fits a channel to the given labels.

    Args:
        probabilities: (N, C) of networks that did not see the row.
        labels: (N,) the given ones, in ``range(C)``.

    Returns:
        The channel; a very large set is thinned evenly before the fit.

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
    anchors = _anchors(probabilities, labels)
    plain, plainly = _fit(_logs(probabilities), labels, anchors, SHARPER)
    unfolded, better = _fit(_logs(_unfold(probabilities, anchors)), labels, anchors, 1.0)
    return replace(unfolded, blur=anchors) if better < plainly - CLEARLY else plain


def _fit(logs: np.ndarray, labels: np.ndarray, anchors: np.ndarray, heat: float) -> tuple[Channel, float]:
    """The channel of these log-probabilities and its objective; lower is better."""
    values, given, classes = torch.from_numpy(logs), torch.from_numpy(labels.astype(np.int64)), logs.shape[1]
    eye = torch.eye(classes, dtype=torch.bool)
    rate = float((1 - np.diag(anchors)).mean().clip(*RATES))
    others = np.where(eye, 0.0, np.log(anchors))
    others = np.where(eye, 0.0, others - others.sum(axis=1, keepdims=True) / (classes - 1))
    parts = {
        "heat": torch.tensor(math.log(heat), dtype=torch.float64),
        "prior": torch.zeros(classes, dtype=torch.float64),
        "rates": torch.zeros(classes, dtype=torch.float64),
        "rate": torch.tensor(math.log(rate / (1 - rate)), dtype=torch.float64),
        "others": torch.from_numpy(others.clip(*OTHERS)),
    }
    for part in parts.values():
        part.requires_grad_()

    def matrix() -> Tensor:
        wrong = torch.sigmoid(parts["rate"] + parts["rates"])[:, None]
        away = parts["others"].masked_fill(eye, -math.inf).softmax(1)
        return torch.where(eye, 1 - wrong, wrong * away)

    def objective() -> Tensor:
        true = (parts["heat"].exp() * values + parts["prior"]).softmax(1)
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
        return Channel(float(parts["heat"].exp()), parts["prior"].numpy(), matrix().numpy()), float(objective())
