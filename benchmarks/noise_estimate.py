"""How well the noise rate is estimated from losses alone: prints the tables of docs/thresholds.md.

    python benchmarks/noise_estimate.py
    python benchmarks/noise_estimate.py --settings binary
    python benchmarks/noise_estimate.py --settings cnn mlp --rates 0.02 0.6 0.8
    python benchmarks/noise_estimate.py --settings cifar --rates 0 0.2 0.4 --seeds 1 --epochs 10 --cifar10 FOLDER

The digits are scikit-learn's. Each run trains on labels with a known share flipped, once without weights ("vanilla"),
once with ``APW(threshold="auto")``; the estimate at its end is compared with the share that was really flipped.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, pstdev

import torch
from torch import Tensor, nn

from torchcurriculum import APW, Arrays, Curriculum, Vanilla, flip_labels
from torchcurriculum.lab.data import load_digits
from torchcurriculum.thresholds import AutoThreshold

METHODS = ("vanilla", "apw auto")
CIFAR_ROWS = 10_000


def cnn(classes: int) -> nn.Module:
    return nn.Sequential(*_block(1, 16), *_block(16, 32), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, classes))


def mlp(classes: int) -> nn.Module:
    hidden = 256
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes)
    )


def cifar_cnn(classes: int) -> nn.Module:
    blocks = [[*_block(i, o), nn.MaxPool2d(2)] for i, o in ((3, 16), (16, 32), (32, 64))]
    return nn.Sequential(*itertools.chain(*blocks), nn.Flatten(), nn.Linear(1024, classes))


def _block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]


def sgd(lr: float) -> Callable[..., torch.optim.Optimizer]:
    return lambda parameters: torch.optim.SGD(parameters, lr, momentum=0.9, weight_decay=5e-4)


def adam(lr: float) -> Callable[..., torch.optim.Optimizer]:
    return lambda parameters: torch.optim.Adam(parameters, lr)


@dataclass(frozen=True)
class Setting:
    words: str
    model: Callable[[int], nn.Module]
    batch_size: int
    optimizer: Callable[..., torch.optim.Optimizer]
    classes: int = 10


SETTINGS = {
    "cnn": Setting("CNN, batch 64, SGD 0.05", cnn, 64, sgd(0.05)),
    "cnn-large-batch": Setting("CNN, batch 256, SGD 0.02", cnn, 256, sgd(0.02)),
    "mlp": Setting("MLP, batch 64, SGD 0.05", mlp, 64, sgd(0.05)),
    "mlp-adam": Setting("MLP, batch 32, Adam 0.001", mlp, 32, adam(1e-3)),
    "binary": Setting("odd or even, MLP, batch 64, SGD 0.05", mlp, 64, sgd(0.05), 2),
    "cifar": Setting("CIFAR-10, CNN, batch 64, SGD 0.05", cifar_cnn, 64, sgd(0.05)),
}


@dataclass(frozen=True)
class Job:
    setting: str
    rate: float
    seed: int
    method: str
    epochs: int
    cifar10: str | None


def load(job: Job) -> tuple[Tensor, Tensor]:
    if job.setting != "cifar":
        x, y = load_digits(job.seed)["train"]
        return x, y % SETTINGS[job.setting].classes
    if job.cifar10 is None:
        raise SystemExit("the setting 'cifar' needs --cifar10 FOLDER, that of data_batch_1.bin")
    raw = torch.frombuffer(bytearray((Path(job.cifar10) / "data_batch_1.bin").read_bytes()), dtype=torch.uint8)
    rows = raw.view(CIFAR_ROWS, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32).float() / 127.5 - 1, rows[:, 0].long()


def run(job: Job) -> tuple[float, float]:
    """The estimate at the end of a run and the share of labels that were really flipped."""
    torch.set_num_threads(1)
    setting, (x, clean) = SETTINGS[job.setting], load(job)
    labels = flip_labels(clean, job.rate, setting.classes, job.seed)
    torch.manual_seed(job.seed)
    model = setting.model(setting.classes)
    optimizer = setting.optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, job.epochs)
    apw = APW(len(x), q=max(2, job.epochs), threshold="auto")
    method = apw if job.method == "apw auto" else Vanilla()
    rule = apw.rule if job.method == "apw auto" else AutoThreshold()
    assert isinstance(rule, AutoThreshold)
    curriculum = Curriculum(method, Arrays(x, labels), batch_size=setting.batch_size, seed=job.seed)
    for _ in range(job.epochs):
        if method is not apw:
            rule(measure(model, x, labels))
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return rule.rate.item(), (labels != clean).double().mean().item()


@torch.no_grad()
def measure(model: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    model.eval()
    parts = zip(x.split(1000), labels.split(1000), strict=True)
    losses = [nn.functional.cross_entropy(model(rows), y, reduction="none") for rows, y in parts]
    model.train()
    return torch.cat(losses)


def table(jobs: list[Job], results: list[tuple[float, float]]) -> str:
    groups: dict[tuple[str, str, float], list[tuple[float, float]]] = {}
    for job, result in zip(jobs, results, strict=True):
        groups.setdefault((job.setting, job.method, job.rate), []).append(result)
    lines = [
        "| setting | method | flipped, % | estimate, mean ± std, % | absolute error, mean / largest, % | e |",
        "|---|---|---|---|---|---|",
    ]
    for (setting, method, _), pairs in groups.items():
        estimates, truths = zip(*pairs, strict=True)
        errors = [abs(estimate - truth) for estimate, truth in pairs]
        e = fmean(math.log(2) - math.log1p(-estimate) for estimate in estimates)
        lines.append(
            f"| {SETTINGS[setting].words} | {method} | {100 * fmean(truths):.1f} "
            f"| {100 * fmean(estimates):.1f} ± {100 * pstdev(estimates):.1f} "
            f"| {100 * fmean(errors):.1f} / {100 * max(errors):.1f} | {e:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Estimates of the label-noise rate against the truth.")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["cnn", "cnn-large-batch", "mlp-adam"])
    parser.add_argument("--rates", nargs="+", type=float, default=[0.0, 0.1, 0.2, 0.4])
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--first-seed", type=int, default=100, help="the estimator was chosen on seeds 0 to 4")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--cifar10", metavar="FOLDER", help="CIFAR-10's binary version, for the setting 'cifar'")
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    grid = itertools.product(args.settings, METHODS, args.rates, seeds)
    jobs = [Job(setting, rate, seed, method, args.epochs, args.cifar10) for setting, method, rate, seed in grid]
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        print(table(jobs, list(pool.map(run, jobs))))


if __name__ == "__main__":
    main()
