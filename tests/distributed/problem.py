"""What the ranks train in these tests: the contract's tiny images, with every setting that could tell ranks apart."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from torchcurriculum import Curriculum, methods

from ..contract.problem import N, data, model

EPOCHS = 3
BATCH = 7  # 37 = 5 x 7 + 2: of three ranks, the last has no row in the last batch


@dataclass(frozen=True)
class Case:
    """A setting of the whole loop; ``methods.build`` gets ``options``."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    measure: Literal["pass", "running"] = "pass"
    accumulate: int = 1
    batch: int = BATCH
    drop_last: bool = False
    norm: bool = False

    @property
    def label(self) -> str:
        marks = [f"{key}={value}" for key, value in self.options.items()]
        marks += [f"{self.measure}", f"accumulate={self.accumulate}", f"batch={self.batch}"]
        marks += [word for word in ("drop_last", "norm") if getattr(self, word)]
        return "-".join([self.name, *marks])


def _cases() -> list[Case]:
    apw = [
        Case(f"apw-{weighting}", {"q": 3, "tau": tau}, measure, accumulate)
        for weighting in ("e", "i", "ei")
        for tau in (0.5, 0.7)
        for measure in ("pass", "running")
        for accumulate in (2, 3)
    ]
    sampled = [
        Case(f"s-apw-{kind}", {"q": 3, "fraction": 0.4}, measure, accumulate)
        for kind in ("a", "e", "i", "ei")
        for measure, accumulate in (("pass", 1), ("running", 2))
    ]
    edges = [
        Case("vanilla"),
        Case("apw-e", {"q": 3, "threshold": "auto"}, accumulate=2),
        Case("apw-e", {"q": 3, "threshold": "auto"}, "running"),
        Case("apw-ei", {"q": 3}, drop_last=True),
        Case("apw-ei", {"q": 3}, accumulate=2, drop_last=True),
        Case("apw-e", {"q": 3}, batch=2),  # of three ranks, the last never has a row
        Case("apw-ei", {"q": 3}, "running", batch=2, accumulate=2),
        Case("apw-e", {"q": 3}, batch=35),
        Case("apw-e", {"q": 3}, batch=37),
        # Batch statistics are of each rank's own rows: these must end and agree between ranks, not with one process.
        Case("apw-e", {"q": 3}, norm=True),
        Case("apw-ei", {"q": 3}, "running", norm=True, accumulate=2),
        Case("apw-i", {"q": 3}, norm=True, batch=2),
        Case("apw-e", {"q": 3}, norm=True, drop_last=True),
    ]
    return [*apw, *sampled, *edges]


CASES = _cases()


def normalised() -> nn.Module:
    """The contract's model with a batch norm behind its convolution."""
    convolution, *rest = model()
    return nn.Sequential(convolution, nn.BatchNorm2d(4, dtype=torch.float64), *rest)


class Training:
    """A run of a case that accumulates gradients, and can be stopped and taken up again."""

    def __init__(self, case: Case, parallel: bool = False, **options: Any) -> None:
        self.case = case
        self.net = normalised() if case.norm else model()
        self.wrapped = DistributedDataParallel(self.net) if parallel else self.net
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
        method = methods.build(case.name, N, EPOCHS, **case.options)
        settings: dict[str, Any] = {"batch_size": case.batch, "seed": 5, "measure": case.measure}
        settings |= {"drop_last": case.drop_last, **options}
        self.curriculum = Curriculum(method, settings.pop("train_set", None) or data(), **settings)
        self.steps, self.plans = 0, {}

    def train(
        self, epochs: int = EPOCHS, stop_after: int | None = None, after: Callable[[Training], None] | None = None
    ) -> Training:
        """Trains until ``epochs`` epochs are done in all, or ``stop_after`` steps; calls ``after`` behind each step."""
        while self.curriculum.number < epochs or self.curriculum.is_open:
            for batch in self.curriculum.epoch(self.wrapped):
                rows = self.curriculum.rows
                self.plans[self.curriculum.number] = torch.arange(N) if rows is None else rows
                self._step(batch)
                if after is not None:
                    after(self)
                if self.steps == stop_after:
                    return self
        return self

    def _step(self, batch: Any) -> None:
        # The window goes on over the end of an epoch, as it does for a user who counts steps.
        self.steps += 1
        closes = self.steps % self.case.accumulate == 0
        with self._quiet(not closes):
            (self.curriculum.loss(self.wrapped, batch) / self.case.accumulate).backward()
        if closes:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def _quiet(self, wanted: bool) -> AbstractContextManager[Any]:
        if wanted and isinstance(self.wrapped, DistributedDataParallel):
            return self.wrapped.no_sync()
        return nullcontext()

    def state(self) -> dict[str, Any]:
        """Everything, as a user would put it into one checkpoint."""
        parts = {"net": self.net, "optimizer": self.optimizer, "curriculum": self.curriculum}
        return copy.deepcopy({name: part.state_dict() for name, part in parts.items()})

    def load(self, state: dict[str, Any]) -> Training:
        """Takes everything back."""
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.curriculum.load_state_dict(state["curriculum"])
        return self

    def tensors(self) -> dict[str, Tensor]:
        """Parameters, the method's state, its weights, and what each epoch planned."""
        found = {f"net.{name}": value for name, value in self.net.state_dict().items()}
        found |= {f"method.{name}": value for name, value in self.curriculum.method.state_dict().items()}
        found |= {f"plan.{number}": rows for number, rows in self.plans.items()}
        weights = getattr(self.curriculum.method, "weights", None)
        return found if weights is None else {**found, "weights": weights}

    def rows(self) -> list[dict[str, Any]]:
        """The record without what a clock says."""
        return [{k: v for k, v in row.items() if k != "seconds"} for row in self.curriculum.record.epochs]


class Counted(Dataset[Any]):
    """Row by row; notes which rows were read."""

    def __init__(self) -> None:
        self.inner, self.read = data(), []

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        self.read.append(row)
        return self.inner.x[row], self.inner.y[row]


class Noisy(Counted):
    """As most users' training sets: each visit draws its augmentation from the global generators."""

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        x, y = super().__getitem__(row)
        return x + 0.1 * torch.randn(x.shape, dtype=x.dtype), y
