"""Rows of the methods that choose rows by loss, draw them, or weigh groups and errors."""

from __future__ import annotations

from typing import Any

import torch

from torchcurriculum import APW, Method, Then, Vanilla
from torchcurriculum.methods import LambdaStep, Scored

from .problem import N
from .row import Row
from .rows_pacing import Teacher

ONE_GROUP = {"groups": torch.zeros(N, dtype=torch.int64)}
LENGTHS = {"lengths": 1 + torch.arange(N) % 20}
WHOLE = {"start": 1.0}
ALWAYS = {"threshold": 1.0}


def irreducible(**more: Any) -> Any:
    return lambda data: {"irreducible": data.x.flatten(1).std(1), **more}


def grouped(**more: Any) -> Any:
    return lambda data: {"groups": data.y + 3 * (torch.arange(N) % 2), **more}


def scored(data: Any, q: float = 3, grand: int | None = 2) -> Method:
    return Scored(APW(N, q), N, early=2, grand=grand)


def scored_then(data: Any, start: float = 0.4) -> Method:
    return Then(Scored(LambdaStep(N, 2, start, warmup=0), N), 2, Vanilla())


ROWS = [
    Row("rho-loss", irreducible(), zero={"fraction": 1.0}),
    Row("rho-loss", irreducible(fraction=0.4, scope="epoch"), zero={"fraction": 1.0}, rank_batch=12),  # of 14 rows
    Row("rho-loss", lambda data: {"irreducible": Teacher(), "fraction": 0.5}, zero={"fraction": 1.0}),
    Row("selective-backprop", {"history": 20}, zero={"beta": 0.0}, sums="any"),
    Row("selective-backprop", {"beta": 1.0, "scope": "epoch"}, zero={"beta": 0.0}),
    Row("selective-backprop", {"beta": 1.0, "scope": "epoch"}, zero={"beta": 0.0}, measure="running"),
    Row("importance-sampling", ALWAYS, zero={"threshold": float("inf")}, sums="any"),
    Row("importance-sampling", {"score": "loss", **ALWAYS}, zero={"threshold": float("inf")}, sums="any"),
    Row("group-dro", grouped(), zero=ONE_GROUP, sums="any"),
    Row("group-dro", grouped(step_size=0.5, adjustment=2.0), zero=ONE_GROUP, sums="any"),
    Row("given-weights", {"weights": [(row % 4) / 2 for row in range(N)]}, zero={"weights": [2.0] * N}, sums="any"),
    Row("jtt", zero={"weight": 1.0}),
    Row("jtt", lambda data: {"errors": data.y == 1, "weight": 5.0}, zero={"weight": 1.0}),
    Row("competence", zero=WHOLE),
    Row("competence", lambda data: {"scores": data.y, "start": 0.2}, zero=WHOLE),
    Row("length-warmup", {**LENGTHS, "grow": 2.5, "multiple": 1}, zero={"start": 20}),
    Row("scored-apw", make=scored, zero=lambda data: scored(data, float("inf"))),
    Row("scored-then", make=scored_then, zero=lambda data: scored_then(data, 1.0)),
]
