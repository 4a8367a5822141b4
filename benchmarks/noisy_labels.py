"""Methods and losses for noisy labels on digits with 40 % of the labels flipped, five seeds each, at the last epoch.

The data, network, optimizer and seeds are those of `curriculum run digits`; a matrix that is estimated
from another run has no place in a recipe, so the loop is here.

    python benchmarks/noisy_labels.py [ARM ...] [--out docs/results/noisy-labels]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcurriculum import Curriculum, Method, Vanilla, methods
from torchcurriculum.distributed import derive, evaluating
from torchcurriculum.lab.evaluation import all_logits
from torchcurriculum.lab.provenance import environment, write_json
from torchcurriculum.lab.recipes.digits import recipe
from torchcurriculum.lab.sources import Problem, load_data, make_model, make_optimizer, make_schedule
from torchcurriculum.losses import (
    Bootstrapped,
    ForwardCorrected,
    GeneralisedCrossEntropy,
    SymmetricCrossEntropy,
    estimate_transition,
)
from torchcurriculum.methods import EMA

SEEDS = range(5)
RECIPE = recipe()
TRUE = torch.full((10, 10), RECIPE.noise_rate / 9).fill_diagonal_(1 - RECIPE.noise_rate)


def named(name: str, **options: Any) -> Callable[[int], Method]:
    """A method by its name."""
    return lambda n: methods.build(name, n, RECIPE.epochs, **options)


METHODS: dict[str, Callable[[int], Method]] = {
    "vanilla": named("vanilla"),
    "argmax": named("argmax"),
    "argmax, memory 0": named("argmax", memory=0.0),
    "small-loss, forget 0.2": named("small-loss"),
    "small-loss, forget 0.4": named("small-loss", forget=0.4),
    "co-teaching, forget 0.4": named("co-teaching", forget=0.4),
    "jocor, forget 0.4": named("jocor", forget=0.4),
    "jocor, forget 0.4, lam 0.85": named("jocor", forget=0.4, lam=0.85),
    "elr": named("elr"),
    "elr, lam 7, beta 0.9": named("elr", lam=7.0, beta=0.9),
    "sop": named("sop"),
    "sop, lr_u 10": named("sop", lr_u=10.0),
    "ema, decay 0.99": named("ema", decay=0.99),
    "ema, decay 0.999": named("ema"),
    "ema over elr, decay 0.99": lambda n: EMA(named("elr")(n), 0.99),
}
LOSSES: dict[str, nn.Module] = {
    "GeneralisedCrossEntropy()": GeneralisedCrossEntropy(),
    "SymmetricCrossEntropy()": SymmetricCrossEntropy(),
    "Bootstrapped()": Bootstrapped(),
    "Bootstrapped(hard=True)": Bootstrapped(hard=True),
    "ForwardCorrected(the true matrix)": ForwardCorrected(TRUE),
}
ESTIMATED = "ForwardCorrected(estimated)"


def train(seed: int, method: Callable[[int], Method], loss: nn.Module | None = None) -> tuple[nn.Module, Problem]:
    """The network at the end of a run, averaged if the method averages, and the data."""
    problem = load_data(RECIPE, seed)
    torch.manual_seed(derive(seed, "initial weights"))
    model = make_model(RECIPE, problem)
    data = problem.sets["train"]
    options: dict[str, Any] = {} if loss is None else {"loss_fn": loss}
    curriculum = Curriculum(method(len(data)), data, batch_size=RECIPE.batch_size, seed=seed, **options)
    optimizer = make_optimizer(RECIPE, model)
    schedule = make_schedule(RECIPE, optimizer)
    for _ in range(RECIPE.epochs):
        for batch in curriculum.epoch(model):
            value = curriculum.loss(model, batch)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        schedule.step()
    made = curriculum.method
    return (made.averaged_model(model) if isinstance(made, EMA) else model), problem


def accuracy(model: nn.Module, problem: Problem) -> float:
    """Per cent right on the test part."""
    test = problem.sets["test"]
    return 100 * float((_logits(model, test).argmax(1) == test.y).double().mean())


def _logits(model: nn.Module, data: Any) -> Tensor:
    with evaluating(model), torch.no_grad():
        return all_logits(model, data)


def arm(name: str) -> list[float]:
    """The accuracies of all seeds."""
    found = []
    for seed in SEEDS:
        if name == ESTIMATED:  # from a network that was fitted to the noisy labels, by rows it has not seen
            fitted, problem = train(seed, METHODS["vanilla"])
            matrix = estimate_transition(_logits(fitted, problem.sets["valid"]).softmax(1))
            model, problem = train(seed, METHODS["vanilla"], ForwardCorrected(matrix))
        elif name in LOSSES:
            model, problem = train(seed, lambda n: Vanilla(), LOSSES[name])
        else:
            model, problem = train(seed, METHODS[name])
        found.append(accuracy(model, problem))
    return found


def main() -> None:
    """Runs the arms and prints a table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="*", metavar="ARM", help="only these")
    parser.add_argument("--out", type=Path, help="the figures of every run go to OUT.json")
    told = parser.parse_args()
    every = [*METHODS, *LOSSES, ESTIMATED]
    if unknown := set(told.arms) - set(every):
        parser.error(f"there is no arm {', '.join(map(repr, sorted(unknown)))}; known: {', '.join(every)}")
    print("| | T-ACC at the last epoch |\n|---|---|")
    runs = {}
    for name in told.arms or every:
        runs[name] = arm(name)
        print(f"| `{name}` | {statistics.mean(runs[name]):.2f} ± {statistics.stdev(runs[name]):.2f} |", flush=True)
        if told.out:
            write_json(
                told.out.with_suffix(".json"), {"seeds": list(SEEDS), "environment": environment(), "runs": runs}
            )


if __name__ == "__main__":
    main()
