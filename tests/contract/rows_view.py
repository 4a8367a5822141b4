"""Rows of the methods that change how a batch looks, and of InfoBatch, which leaves rows out."""

from __future__ import annotations

from .row import Row

DRAWS = "masks and augmentations are drawn for a rank's part of the batch"
STAGES = ((0.5, 0.5), (0.75, 0.75))
PLAIN = {"stages": (), "magnitude": 0.0}

ROWS = [
    Row("cbs", zero={"sigma": 0.0}),
    Row("cbs", {"decay": 0.8, "interval": 1, "kernel_size": 5}, zero={"sigma": 0.0}),
    # The network of the contract has a flat head, which takes one size only.
    Row("efficient-train", {"keep_size": True}, zero=PLAIN, ranks_reason=DRAWS),
    Row("efficient-train", {"keep_size": True, "stages": STAGES, "magnitude": 0.0}, zero=PLAIN),
    Row("efficient-train-plus", {"keep_size": True}, zero=PLAIN, ranks_reason=DRAWS),
    Row("cbm", {"cycle": 3}, zero={"ratio": 0.0}, ranks_reason=DRAWS),
    Row("cbm", {"schedule": "linear", "grid": 3}, zero={"ratio": 0.0}, ranks_reason=DRAWS),
    Row("cbm", {"schedule": "exp", "ratio": 0.5}, zero={"ratio": 0.0}, ranks_reason=DRAWS),
    Row("infobatch", zero={"ratio": 0.0}, sums="any"),
    Row("infobatch", {"ratio": 0.7, "delta": 1.0}, zero={"ratio": 0.0}, sums="any", measure="running"),
]
