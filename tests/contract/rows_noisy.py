"""Methods for noisy labels: selection by loss or prediction, regularisers, second networks, weight averaging."""

from __future__ import annotations

from .row import Row

LEFT_OUT = "wrong labels are left out: the loss of the true labels falls, that of the given ones rises"
SECOND = "the second view counts as much as the first in the end"
FIXED = {"weak": lambda x, generator: x, "strong": lambda x, generator: 1.1 * x}  # the same on every rank
CLIPPED = "the loss is not loss_fn: probabilities are clipped, and u and v start at 1e-8"

ROWS = [
    Row("argmax", {"warmup": 1}, zero={"warmup": 99}, sums="any", trains_reason=LEFT_OUT),
    Row("small-loss", {"forget": 0.4, "gradual": 3}, zero={"forget": 0.0}, trains_reason=LEFT_OUT),
    Row("drw", {"start": 2, "beta": 0.9}, zero={"beta": 0.0}),
    Row("elr", zero={"lam": 0.0}),
    Row("co-teaching", {"gradual": 3}, zero={"forget": 0.0}),
    Row("jocor", {"gradual": 3, "lam": 0.5}, zero={"forget": 0.0, "lam": 0.0}),
    Row("ema", {"decay": 0.9}, zero={}),
    Row("two-views", {"plain": 1, "ramp": 1, **FIXED}, zero_reason=SECOND),
    Row("sop", {"lr_u": 10.0, "lr_v": 100.0}, zero={"lr_u": 0.0, "lr_v": 0.0}, zero_reason=CLIPPED),
]
