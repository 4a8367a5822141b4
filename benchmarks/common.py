"""What the benchmarks share: made-up images, the loop without a curriculum, the loop with one, turns between them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcurriculum import Curriculum, GraphedStep, methods
from torchcurriculum.distributed import derive
from torchcurriculum.lab.data import Images
from torchcurriculum.lab.models import resnet18, simple_cnn
from torchcurriculum.lab.provenance import environment
from torchcurriculum.shell.reader import BatchReader

MODELS: dict[str, Callable[[], nn.Module]] = {"simple-cnn": simple_cnn, "resnet-18": resnet18}


@dataclass(frozen=True)
class Setting:
    """One row of a table: everything that decides how long an epoch takes, except the curriculum."""

    model: str = "simple-cnn"
    mode: str = "eager"  # or "compile", or on CUDA "graph": the whole step as one CUDA graph
    precision: str = "float32"  # or "bfloat16": autocast
    rows: int = 45_000
    batch: int = 100
    device: str = "cpu"

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device, torch.bfloat16) if self.precision == "bfloat16" else nullcontext()


def images(rows: int, device: str) -> Images:
    """CIFAR-shaped noise; time does not depend on what is in an image."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (rows, 3, 32, 32), dtype=torch.uint8, generator=draw)
    return Images(x.to(device), torch.randint(0, 10, (rows,), generator=draw).to(device))


class Trained:
    """A network with its optimizer, as a recipe makes them."""

    def __init__(self, setting: Setting) -> None:
        torch.manual_seed(0)
        self.model = MODELS[setting.model]().to(setting.device).train()
        options: dict[str, Any] = {"momentum": 0.9, "weight_decay": 5e-4}
        lr: float | Tensor = 0.01
        if setting.device == "cuda":
            torch.backends.cudnn.benchmark = True
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            lr, options["fused"] = torch.tensor(0.01, device="cuda"), True
        self.net = torch.compile(self.model) if setting.mode == "compile" else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr, **options)


class Plain:
    """The loop without a curriculum: the same order, reads, augmentation and optimizer, and the mean loss."""

    def __init__(self, setting: Setting, data: Images, trained: Trained) -> None:
        self.setting, self.data, self.trained = setting, data, trained
        self.reader, self.number = BatchReader(data), 0
        self.step: Callable[[Tensor, Tensor], Any] = self.plain
        if setting.mode == "graph":
            self.step = Captured(self.plain, trained.optimizer)

    def plain(self, x: Tensor, y: Tensor) -> None:
        with self.setting.autocast():
            loss = F.cross_entropy(self.trained.net(x), y)
        self.trained.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.trained.optimizer.step()

    def epoch(self) -> None:
        self.number += 1
        draw = torch.Generator().manual_seed(derive(0, "order", self.number))
        batches = list(torch.randperm(len(self.data), generator=draw).split(self.setting.batch))
        for x, y in self.reader.read(batches, lambda place: derive(0, self.number, place)):
            self.step(x, y)


class Captured:
    """A plain step as one CUDA graph, as PyTorch's notes on CUDA graphs write it."""

    def __init__(self, step: Callable[[Tensor, Tensor], None], optimizer: torch.optim.Optimizer) -> None:
        self.step, self.optimizer, self.warm = step, optimizer, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream = torch.cuda.Stream()

    def __call__(self, x: Tensor, y: Tensor) -> None:
        if self.warm < 3:
            self.warm += 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.step(x, y)
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        if self.graph is None:
            self.x, self.y, self.graph = x.clone(), y.clone(), torch.cuda.CUDAGraph()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(self.graph):
                self.step(self.x, self.y)
        if x.shape != self.x.shape:
            return self.step(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()


class With:
    """The loop with a curriculum around a method."""

    def __init__(
        self, setting: Setting, data: Images, trained: Trained, method: str, measure: str = "pass", epochs: int = 200
    ) -> None:
        self.setting, self.trained = setting, trained
        size = 5000 if setting.device == "cuda" else None
        self.curriculum = Curriculum(
            methods.build(method, len(data), epochs),
            data,
            batch_size=setting.batch,
            measure=measure,  # type: ignore[arg-type]
            measure_batch_size=size,
            forward=self.forward,
        )
        graphed = GraphedStep(self.curriculum, trained.net, trained.optimizer) if setting.mode == "graph" else None  # type: ignore[arg-type]
        self.step = graphed or self.plain

    def forward(self, net: nn.Module, x: Tensor) -> Tensor:
        with self.setting.autocast():
            return net(x).float()  # as autocast does it for a loss inside of it

    def plain(self, batch: Any) -> None:
        loss = self.curriculum.loss(self.trained.net, batch)  # type: ignore[arg-type]
        self.trained.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.trained.optimizer.step()

    def epoch(self) -> None:
        for batch in self.curriculum.epoch(self.trained.net):  # type: ignore[arg-type]
            self.step(batch)


def epochs_of(model: nn.Module, curriculum: Curriculum, epochs: int, lr: float) -> Iterator[int]:
    """Trains with SGD and a cosine schedule, and stops after every epoch to be looked at."""
    optimizer = torch.optim.SGD(model.parameters(), lr, 0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs, 1e-6)
    for epoch in range(epochs):
        model.train()
        for batch in curriculum.epoch(model):
            optimizer.zero_grad(set_to_none=True)
            curriculum.loss(model, batch).backward()
            optimizer.step()
        schedule.step()
        yield epoch


def spread(values: Sequence[float], digits: int) -> str:
    """The mean, and the standard deviation where there is more than one value."""
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else mean


def beside(found: np.ndarray, plain: np.ndarray) -> str:
    """Cells of a table from (seeds, figures): each figure's mean and deviation, and those of its gap to ``plain``."""
    cells = []
    for values, gap in zip(found.T, (found - plain).T, strict=True):
        cells.append(f"{values.mean():.2f} ± {values.std(ddof=1):.2f}")
        cells.append(f"{gap.mean():+.2f} ± {gap.std(ddof=1):.2f}")
    return " | ".join(cells)


def seconds(work: Callable[[], Any], device: str) -> float:
    """Wall time on an accelerator, this process's CPU time elsewhere: others may be using the machine."""
    if device == "cuda":
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return time.perf_counter() - start
    start = time.process_time()
    work()
    return time.process_time() - start


def turns(loops: Mapping[str, Any], repeats: int, device: str, until: float = float("inf")) -> dict[str, list[float]]:
    """Seconds of an epoch of each loop, taking turns; an epoch of each goes before and is not counted."""
    for loop in loops.values():
        loop.epoch()
    found: dict[str, list[float]] = {name: [] for name in loops}
    for turn in range(repeats):
        names = list(loops) if turn % 2 == 0 else list(loops)[::-1]
        for name in names:
            found[name].append(seconds(loops[name].epoch, device))
        if time.monotonic() > until and turn >= 2:
            break
    return found


def ratios(found: Mapping[str, list[float]], base: str = "plain") -> Iterator[dict[str, Any]]:
    """For each loop its seconds and its ratio to ``base`` of the same turn: median, lowest, highest, n."""
    for name, times in found.items():
        each = [mine / other for mine, other in zip(times, found[base], strict=True)]
        yield {
            "loop": name,
            "seconds": statistics.median(times),
            "ratio": statistics.median(each),
            "range": [min(each), max(each)],
            "quartiles": _quartiles(each),
            "best": min(times) / min(found[base]),  # what a noisy neighbour disturbs least
            "n": len(each),
        }


def _quartiles(values: list[float]) -> list[float]:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return [low, high]


def where(command: str) -> dict[str, Any]:
    """Hardware, versions, commit and command, for the head of a results file."""
    try:
        load: float | None = os.getloadavg()[0]
    except OSError:
        load = None
    cpu = next(iter(_cpu_names()), platform.processor())
    return {**environment(), "cpu": cpu, "threads": torch.get_num_threads(), "load": load, "command": command}


def _cpu_names() -> Iterator[str]:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                yield line.partition(":")[2].strip()
    except OSError:
        return


def needs(name: str, n: int) -> dict[str, Any]:
    """Options without which a method cannot be made, or not for pictures."""
    rows = torch.arange(n)
    made = {"group-dro": {"groups": rows % 4}, "rho-loss": {"irreducible": torch.zeros(n)}}
    return {**made, "length-warmup": {"lengths": 1 + rows % 32}}.get(name, {})


def save(path: Path | None, value: Mapping[str, Any]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=1) + "\n")


def save_page(path: Path, text: str) -> None:
    """Writes a page of results, and keeps the three lines of answer below the title of the page that it replaces."""
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    answer = [line for line in old[2:5] if line.startswith("- ")]
    title, _, rest = text.partition("\n")
    kept = "\n".join([title, "", *answer, rest]) if answer else text
    path.write_text(kept, encoding="utf-8")
