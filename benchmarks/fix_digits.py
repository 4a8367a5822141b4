"""From a folder of mislabelled pictures to a corrected one, and how many labels are really wrong before and after.

    python benchmarks/fix_digits.py

800 of scikit-learn's digits as pictures, a tenth of the labels drawn anew from the other classes; `curriculum clean`,
then `curriculum fix --min-probability 0.9 --check`. The figures stand in docs/review.md.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from torchcurriculum.cli import main


def write(folder: Path) -> dict[str, str]:
    """Writes the pictures; returns the true class of each file."""
    digits, generator, truth = load_digits(), np.random.default_rng(0), {}
    for number, row in enumerate(generator.permutation(len(digits.target))[:800]):
        right = given = int(digits.target[row])
        if generator.random() < 0.1:
            given = (right + int(generator.integers(1, 10))) % 10
        (folder / str(given)).mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray((255 - digits.images[row] * 15.9).astype("uint8"))
        picture.resize((32, 32), Image.Resampling.BICUBIC).save(folder / str(given) / f"{number:04d}.png")
        truth[f"{number:04d}"] = str(right)
    return truth


def wrong(folder: Path, truth: dict[str, str]) -> int:
    """How many pictures lie in the folder of another class."""
    return sum(truth[path.stem[:4]] != path.parent.name for path in folder.rglob("*.png"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        data, review, fixed = (Path(place) / name for name in ("digits", "review", "fixed"))
        truth = write(data)
        main(["clean", str(data), "--review", str(review)])
        main(["fix", str(review), "--out", str(fixed), "--min-probability", "0.9", "--check"])
        print(f"really wrong: {wrong(data, truth)} before, {wrong(fixed, truth)} after")
