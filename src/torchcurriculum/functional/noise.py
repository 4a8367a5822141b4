"""The share of mislabelled rows, estimated from losses, and the resulting error threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["AutoThreshold", "Populations", "estimate_noise_rate", "fit_populations", "label_log_odds"]

LOSS_RANGE = (1e-4, 20.0)  # beyond it a probability counts as 0 or 1; also the value of a loss of 1e4 (NaN)
ROWS = 200  # with fewer, chance splits one population in two too often
STEPS = 50  # of expectation-maximisation
SEPARATION = 2.5  # between the values of clean and noisy digits; chosen on seeds 0-4 of benchmarks/noise_estimate.py
ODDS = 1.0  # an untrained net's classes form narrow populations whose log-odds differ by less than this
RATE_LIMIT = 0.9  # above it the other population is the few rows learned first


@dataclass(frozen=True)
class Populations:
    """Two normal distributions with one variance, fitted to log-odds of labels; all fields are tensors of one shape.

    Attributes:
        share: Weight of the lower one, the rows whose labels are improbable.
        low: Its mean.
        high: The other's mean.
        variance: Of both.
    """

    share: Tensor
    low: Tensor
    high: Tensor
    variance: Tensor

    @property
    def separation(self) -> Tensor:
        """D: the distance of the means in standard deviations."""
        return (self.high - self.low) / self.variance.sqrt()

    @property
    def real(self) -> Tensor:
        """Whether these are two populations, not one split in two."""
        apart = (self.separation >= SEPARATION) & (self.high - self.low >= ODDS)
        return apart & (self.low < 0) & (self.share <= RATE_LIMIT)

    @property
    def contrast(self) -> Tensor:
        """The spread between the populations over the spread within; 0 if there is only one."""
        return torch.where(self.real, self.separation * (self.share * (1 - self.share)).sqrt(), 0.0)


def label_log_odds(losses: Tensor) -> Tensor:
    """log(p / (1 - p)) of labels whose probability p has this cross-entropy, clipped where p counts as 0 or 1.

    Example:
        >>> round(label_log_odds(torch.tensor(math.log(4))).item(), 4)   # p is 1/4: log(1/3)
        -1.0986
    """
    return -losses.double().clamp(*LOSS_RANGE).expm1().log()


def fit_populations(values: Tensor, counts: Tensor | None = None) -> Populations:
    """Fits two populations by 50 steps of expectation-maximisation from a fixed start.

    Args:
        values: (M,) log-odds of labels, see ``label_log_odds``.
        counts: (..., M) how often each value occurs, for one or many samples; by default once.

    Returns:
        The fit, with fields of shape (...).

    Example:
        >>> fit = fit_populations(torch.tensor([-4.0, 2.0]), counts=torch.tensor([[30.0, 70.0], [50.0, 50.0]]))
        >>> [round(share, 4) for share in fit.share.tolist()], fit.real.tolist()
        ([0.3, 0.5], [True, True])
    """

    def mean(parts: Tensor) -> Tensor:
        return parts.mean(-1) if counts is None else (counts * parts).sum(-1) / counts.sum(-1)

    centre = mean(values)
    values = values - centre[..., None]
    square = mean(values.square())
    share, low, high, variance = torch.full_like(square, 0.5), -square.sqrt(), square.sqrt(), square.clamp_min(1e-4)
    for _ in range(STEPS):
        # With one variance for both, the posterior of the high-loss population is a logistic function of the logit.
        slope = (high - low) / variance
        odds = torch.logit(share)[..., None] + slope[..., None] * (((low + high) / 2)[..., None] - values)
        posterior = torch.sigmoid(odds)
        share = mean(posterior).clamp(1e-6, 1 - 1e-6)
        low = mean(posterior * values) / share
        high = -share * low / (1 - share)  # the logits are centred
        variance = (square - share * low.square() - (1 - share) * high.square()).clamp_min(1e-4)
    return Populations(share, low + centre, high + centre, variance)


def _populations(losses: Tensor) -> tuple[Tensor, Tensor]:
    """Share of the high-loss population and the contrast of the two; both zero if there is only one."""
    finite = losses[losses.isfinite()]
    if len(finite) < ROWS:
        zero = torch.zeros((), dtype=torch.float64, device=losses.device)
        return zero, zero
    fit = fit_populations(label_log_odds(finite))
    return torch.where(fit.real, fit.share, 0.0), fit.contrast


def _describe(value: object) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


class AutoThreshold(nn.Module):
    r"""The error threshold e with the noise rate estimated from the losses: the rule behind ``APW(threshold="auto")``.

    A network learns the rows with true labels first, so for some epochs the losses form two populations, and later,
    when it has learned the wrong labels too, one. Each call fits a mixture of two normal distributions with one
    variance to the log-odds of the labels, :math:`x = \log\frac{p}{1-p} = -\log(\exp(\mathrm L) - 1)`, by 50 steps of
    expectation-maximisation from a fixed start. With the weight w of the high-loss population and the separation
    :math:`D = (\mu_1 - \mu_0) / \sigma`, there are two populations if :math:`D \ge 2.5`, :math:`\mu_1 - \mu_0 \ge 1`,
    :math:`\mu_0 < 0` (a probability below one half) and :math:`w \le 0.9`. Their contrast is
    :math:`D\sqrt{w(1-w)}`, the spread between the populations over the spread within, and 0 if there is only one.

    Early in training a net may miss a whole class for one epoch, so two consecutive calls must agree: the smaller of
    their contrasts counts. The estimate :math:`\hat p` is the mean of their weights w where that is the largest so far,
    and :math:`e = \log 2 - \log(1 - \hat p)`, the paper's rule for synthetic noise. Until then :math:`\hat p = 0`
    and :math:`e = \log 2`.

    The losses must be negative logarithms of the label's probability (cross-entropy). Losses that are not finite
    (rows never seen) are left out.

    Attributes:
        rate: The estimate of the noise rate, a scalar tensor; at most 0.9.
        contrast: The contrast it was found at; 0 while there is no estimate.
        last: (2,), w and contrast of the last call.

    Example:
        >>> rule = AutoThreshold()
        >>> learned, wrong = torch.linspace(0.1, 0.6, 600), torch.linspace(3.0, 5.0, 400)
        >>> noisy = torch.cat([learned, wrong])
        >>> [round(rule(losses).item(), 4) for losses in (learned, noisy, noisy, learned)]
        [0.6931, 0.6931, 1.204, 1.204]
    """

    rate: Tensor
    contrast: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rate", torch.zeros((), dtype=torch.float64))
        self.register_buffer("contrast", torch.zeros((), dtype=torch.float64))
        self.register_buffer("last", torch.zeros(2, dtype=torch.float64))

    def forward(self, losses: Tensor) -> Tensor:
        """Adds the losses of one epoch.

        Args:
            losses: (N,) losses at the start of the epoch.

        Returns:
            e, a float64 scalar.
        """
        if not isinstance(losses, Tensor) or losses.ndim != 1 or not losses.is_floating_point():
            raise ValueError(f"the rule needs one loss per row, floats of shape (N,), got {_describe(losses)}")
        now = torch.stack(_populations(losses.detach())).to(self.last.device)
        contrast = torch.minimum(now[1], self.last[1])
        better = contrast > self.contrast
        self.rate.copy_(torch.where(better, (now[0] + self.last[0]) / 2, self.rate))
        self.contrast.copy_(torch.where(better, contrast, self.contrast))
        self.last.copy_(now)
        return math.log(2) - torch.log1p(-self.rate)


def estimate_noise_rate(losses: Tensor) -> Tensor:
    r"""p_noise of the paper's rules for e, estimated: the share of rows in the high-loss population.

    Args:
        losses: (N,) cross-entropy losses of all rows at one moment, a few epochs into training; or better (T, N), those
            of the first T epochs: two consecutive ones must agree, and those with the largest contrast count (see
            ``AutoThreshold``).

    Returns:
        A float64 scalar in [0, 0.9]; 0 if the losses form one population.

    Example:
        >>> losses = torch.cat([torch.linspace(0.1, 0.6, 800), torch.linspace(3.0, 5.0, 200)])
        >>> round(estimate_noise_rate(losses).item(), 4), estimate_noise_rate(losses[:800]).item()
        (0.2, 0.0)
    """
    if not isinstance(losses, Tensor) or losses.ndim not in (1, 2) or not losses.numel():
        raise ValueError(f"losses must be of shape (N,) or (T, N) with T, N >= 1, got {_describe(losses)}")
    if losses.ndim == 1:
        return _populations(losses.detach())[0]
    rule = AutoThreshold().to(losses.device)
    for epoch in losses:
        rule(epoch)
    return rule.rate
