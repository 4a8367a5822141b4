"""How long the report and the audit of a large record take, how much memory, and how large the page is.

    python benchmarks/report_size.py [--rows 1000000] [--epochs 20]

The record is made here as E-weighting would leave it, over losses that fall and stay high for a fifth of the rows.
"""

from __future__ import annotations

import argparse
import math
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from torchcurriculum import Record
from torchcurriculum.audit import audit
from torchcurriculum.report import write_report


def make(folder: Path, rows: int, epochs: int) -> None:
    draw = np.random.default_rng(0)
    record = Record(rows, {"method": "apw-e", "seed": 0, "q": epochs}, folder)
    clean = draw.integers(0, 10, rows)
    wrong = draw.random(rows) < 0.2
    record.set_array("clean", clean)
    record.set_array("labels", np.where(wrong, (clean + 1) % 10, clean))
    log_weights = np.zeros(rows)
    for epoch in range(1, epochs + 1):
        centre = np.where(wrong, 4.0, 2.3 - 2.1 * min(1.0, 3 * epoch / epochs))
        losses = (centre + draw.normal(0, 0.3, rows)).clip(0.001).astype(np.float32)
        easy = losses <= 1.0
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        rho = float(weights[~easy].sum().clip(1e-4, 1 - 1e-4))
        alpha = math.log((1 - rho) / rho) / epochs
        z = float((weights * np.exp(np.where(easy, -alpha, alpha))).sum())
        log_weights -= np.where(easy, alpha, -alpha)
        after = np.exp(log_weights - log_weights.max())
        after *= rows / after.sum()
        row = {"epoch": epoch, "rho": rho, "alpha": alpha, "z": z, "threshold": 1.0, "eprop": float(easy.mean())}
        row["phase"] = "early" if rho > 0.5 else "later"
        row["weight_quantiles"] = np.quantile(after, (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)).tolist()
        record.append(row, losses=losses, easy=easy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="write the page here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "record", options.rows, options.epochs)
        steps = {"begin": time.perf_counter()}
        record = Record.load(Path(folder) / "record")
        steps["load"] = time.perf_counter()
        found = audit(record)
        steps["audit"] = time.perf_counter()
        page = write_report({"apw-e": [record]}, options.keep or Path(folder) / "page.html", title="Large")
        steps["report, with an audit"] = time.perf_counter()
        size = page.stat().st_size
    names, times = list(steps), list(steps.values())
    for number, name in enumerate(names[1:]):
        print(f"{name:<24}{times[number + 1] - times[number]:6.1f} s")
    print(f"{'page':<24}{size / 1e6:6.2f} MB")
    print(f"{'peak memory':<24}{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:6.2f} GB")
    print(found.summary())


if __name__ == "__main__":
    main()
