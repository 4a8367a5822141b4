"""Every method, one row: how to make it, and what it promises beyond the contract that all keep.

The rows of APW and of vanilla are here; those of the other families in ``rows_*.py`` beside this file.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path

from .row import Row

STILL = {"q": math.inf}
WHOLE = {"q": math.inf, "fraction": 1.0}
MIXING = "it mixes inputs whatever the weights; equal weights give plain mixup, not vanilla"
PAIRS = "partners are drawn within a rank's part of the batch"

TABLE = [
    Row("vanilla", zero={}),
    Row("apw-e", {"q": 3}, zero=STILL),
    Row("apw-i", {"q": 3}, zero=STILL),
    Row("apw-ei", {"q": 3}, zero=STILL),
    Row("apw-e", {"q": 3, "tau": 0.7}, zero={"q": math.inf}),
    Row("apw-e", {"q": 3}, zero=STILL, measure="running"),
    Row("apw-ei", {"q": 3}, zero=STILL, measure="running"),
    Row("apw-e", {"q": 3, "threshold": "auto"}, zero=STILL),
    Row("s-apw-a", {"q": 3, "fraction": 0.4}, zero=WHOLE),
    Row("s-apw-e", {"q": 3, "fraction": 0.4}, zero=WHOLE),
    Row("s-apw-i", {"q": 3, "fraction": 0.4}, zero=WHOLE),
    Row("s-apw-ei", {"q": 3, "fraction": 0.4}, zero=WHOLE),
    Row("m-apw-e", {"q": 3}, zero=STILL, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("m-apw-beta-e", {"q": 3}, zero=STILL, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("m-apw-beta-i", {"q": 3}, zero=STILL, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("m-apw-beta-ei", {"q": 3}, zero=STILL, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("m-apw-e", {"q": 3, "reading": "labels"}, zero=STILL, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("m-apw-i", {"q": 3}, zero=STILL, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("m-apw-ei", {"q": 3}, zero=STILL, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("mixup", zero={"alpha": 1e-6}, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("mixup", {"per": "batch"}, zero={"alpha": 1e-6}, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("cutmix", zero={"probability": 0.0}, ranks_reason=PAIRS),
    Row("cutmix", {"per": "pair", "probability": 0.5}, zero={"probability": 0.0}, ranks_reason=PAIRS),
]

for _path in sorted(Path(__file__).parent.glob("rows_*.py")):
    TABLE += importlib.import_module(f"{__package__}.{_path.stem}").ROWS
