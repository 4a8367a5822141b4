"""Methods put together: Then, Both, Sampled and Mixed over methods other than APW, and inside of each other."""

from __future__ import annotations

import math
from typing import Any

from torchcurriculum import APW, RAPW, Both, Method, Mixed, Sampled, SuperLoss, Then, Vanilla
from torchcurriculum.methods import CBS, SPL, BabyStep, Balanced, InfoBatch, LambdaStep

from .problem import EPOCHS, N
from .row import Row

ESTIMATED = "RAPW believes labels by its memory; nothing makes its weights equal"
MIXING = "Mixed mixes inputs whatever the weights; equal weights give plain mixup, not vanilla"
PAIRS = "partners are drawn within a rank's part of the batch"


def in_doubt(data: Any = None, **knobs: float) -> RAPW:
    """RAPW after its plain epochs, on labels that it doubts: those of the problem are right."""
    method = RAPW(N, plain=0, **knobs)  # type: ignore[arg-type]
    method.late.fill_(1)
    method.doubt.fill_(1)
    return method


def then_apw(data: Any, q: float = 3) -> Method:
    return Then(Vanilla(), 1, APW(N, q, threshold=1.0))


def then_superloss(data: Any, buckets: int = 2, lam: float = 1.0) -> Method:
    return Then(BabyStep(N, buckets, interval=1), 2, SuperLoss(lam=lam))


def then_three(data: Any, sigma: float = 1.0, ratio: float = 0.5, q: float = 3) -> Method:
    return Then(CBS(1, sigma), 1, Then(InfoBatch(N, EPOCHS, ratio), 2, APW(N, q, weighting="EI")))


def both_superloss(data: Any, sigma: float = 1.0, lam: float = 1.0) -> Method:
    return Both(CBS(0.5, sigma), SuperLoss(lam=lam))


def both_rapw(data: Any, start: float = 0.3) -> Method:
    return Both(LambdaStep(N, 2, start, warmup=0), in_doubt(decay=0.5))


def both_spl(data: Any, start: float = 0.5, q: float = 3) -> Method:
    return Both(SPL(N, 2, start, scheme="linear"), APW(N, q, weighting="I"))


def sampled_both(data: Any, sigma: float = 1.0, fraction: float = 0.4, q: float = 3) -> Method:
    return Sampled(Both(CBS(1, sigma), APW(N, q, threshold=1.0, weighting="I")), fraction)


def sampled_rapw(data: Any, fraction: float = 0.4) -> Method:
    return Sampled(in_doubt(), fraction)


def mixed_superloss(data: Any, lam: float = 1.0) -> Method:
    return Mixed(SuperLoss(lam=lam))


def mixed_rapw(data: Any) -> Method:
    return Mixed(in_doubt(), "weights")


def mixed_both(data: Any, start: float = 0.3, q: float = 3) -> Method:
    return Mixed(Both(LambdaStep(N, 2, start, warmup=0), APW(N, q)), "labels")


def then_mixed(data: Any, fraction: float = 0.4, q: float = 3) -> Method:
    return Then(Mixed(APW(N, q)), 1, Sampled(APW(N, q), fraction))


def balanced(data: Any, strength: float = 1.0, lam: float = 1.0) -> Method:
    return Balanced(SuperLoss(lam=lam), [row % 5 % 3 for row in range(N)], strength=strength)


def balanced_rows(data: Any, strength: float = 0.7, q: float = 3) -> Method:
    return Balanced(APW(N, q, weighting="EI"), [row % 5 % 3 for row in range(N)], "rows", strength)


ROWS = [
    Row("rapw-in-doubt", make=in_doubt, zero_reason=ESTIMATED),
    Row("balanced", make=balanced, zero=lambda data: balanced(data, 0.0, math.inf), sums="any"),
    Row("balanced-rows", make=balanced_rows, zero=lambda data: balanced_rows(data, 0.0, math.inf)),
    Row("then-apw", make=then_apw, zero=lambda data: then_apw(data, math.inf)),
    Row("then-superloss", make=then_superloss, zero=lambda data: then_superloss(data, 1, math.inf), sums="any"),
    Row("then-three", make=then_three, zero=lambda data: then_three(data, 0.0, 0.0, math.inf), sums="any"),
    Row("both-superloss", make=both_superloss, zero=lambda data: both_superloss(data, 0.0, math.inf), sums="any"),
    Row(
        "both-rapw",
        make=both_rapw,
        zero=lambda data: both_rapw(data, 1.0),
        zero_reason=ESTIMATED,
        measure="running",
    ),
    Row("both-spl", make=both_spl, zero=lambda data: both_spl(data, 1.0, math.inf)),
    Row("sampled-both", make=sampled_both, zero=lambda data: sampled_both(data, 0.0, 1.0, math.inf)),
    Row(
        "sampled-rapw",
        make=sampled_rapw,
        zero=lambda data: sampled_rapw(data, 1.0),
        zero_reason=ESTIMATED,
    ),
    Row(
        "mixed-superloss",
        make=mixed_superloss,
        zero=lambda data: mixed_superloss(data, math.inf),
        zero_reason=MIXING,
        ranks_reason=PAIRS,
        inner_sums="any",
    ),
    Row("mixed-rapw", make=mixed_rapw, zero_reason=MIXING, ranks_reason=PAIRS),
    Row(
        "mixed-both",
        make=mixed_both,
        zero=lambda data: mixed_both(data, 1.0, math.inf),
        zero_reason=MIXING,
        ranks_reason=PAIRS,
    ),
    Row(
        "then-mixed",
        make=then_mixed,
        zero=lambda data: then_mixed(data, 1.0, math.inf),
        zero_reason=MIXING,
        ranks_reason=PAIRS,
    ),
]
