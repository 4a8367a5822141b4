"""Further destinations of a record's rows: CSV, TensorBoard, W&B, MLflow, or your own class.

A sink is any object with ``write(row)``; ``curriculum.record.attach(sink)`` sends it every row from then on. Under
``torch.distributed`` attach it on the first rank only.
"""

from __future__ import annotations

import csv
import itertools
import math
import numbers
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from .files import overwrite

__all__ = ["CSV", "MLflow", "TensorBoard", "WandB", "histograms", "scalars", "texts"]

ENVIRONMENT = threading.Lock()  # environment variables are shared by all threads
SHARES = (0.05, 0.2, 0.25, 0.25, 0.2, 0.05)  # of values between the quantiles of a row


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row; a list of numbers becomes ``name/0``, ``name/1``, ...

    Example:
        >>> scalars({"epoch": 1, "rho": 0.5, "phase": "early", "loss_quantiles": [0.1, 2.0]})
        {'rho': 0.5, 'loss_quantiles/0': 0.1, 'loss_quantiles/1': 2.0}
    """
    found = {}
    for name, value in row.items():
        parts = {f"{name}/{k}": part for k, part in enumerate(value)} if isinstance(value, list) else {name: value}
        found.update({key: float(part) for key, part in parts.items() if isinstance(part, numbers.Real)})
    found.pop("epoch", None)
    return found


def texts(row: Mapping[str, Any]) -> dict[str, str]:
    """The texts of a row, such as the phase."""
    return {name: value for name, value in row.items() if isinstance(value, str)}


def histograms(row: Mapping[str, Any]) -> dict[str, list[tuple[float, float, float]]]:
    """Histograms of a row's losses and weights: (from, to, share) between their quantiles.

    Bars without width, from many equal values, are merged with a neighbour.

    Example:
        >>> histograms({"loss_quantiles": [0.0, 0.1, 0.1, 0.5, 1.0, 2.0, 4.0]})["loss"]
        [(0.0, 0.1, 0.05), (0.1, 0.5, 0.45), (0.5, 1.0, 0.25), (1.0, 2.0, 0.2), (2.0, 4.0, 0.05)]
    """
    found = {}
    for name in ("loss", "weight"):
        values = row.get(f"{name}_quantiles")
        if not isinstance(values, list) or len(values) != len(SHARES) + 1:
            continue
        if not all(isinstance(value, numbers.Real) and math.isfinite(value) for value in values):
            continue
        bars: list[tuple[float, float, float]] = []
        waiting = 0.0
        for (low, high), share in zip(itertools.pairwise(values), SHARES, strict=True):
            waiting += share
            if high > low:
                bars.append((low, high, waiting))
                waiting = 0.0
        if waiting:
            low, high, share = bars.pop() if bars else (values[0], values[-1], 0.0)
            bars.append((low, high, share + waiting))
        found[name] = bars
    return found


class CSV:
    """One line per epoch in a file that any spreadsheet reads; needs nothing but Python.

    Appends to an existing file; lines of epochs that are run again are replaced.

    Args:
        path: The file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     CSV(f"{folder}/run.csv").write({"epoch": 1, "rho": 0.5})
        ...     print(Path(f"{folder}/run.csv").read_text())
        epoch,rho
        1,0.5
        <BLANKLINE>
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.rows: dict[int, dict[str, Any]] = {}
        if self.path.exists():
            if not self.path.is_file():  # reading a pipe could block, and /dev/zero is endless
                raise ValueError(f"{self.path} is not a regular file, but a table of epochs must be")
            try:
                with open(self.path, newline="", encoding="utf-8") as file:
                    self.rows = {int(row["epoch"]): dict(row) for row in csv.DictReader(file)}
            except (KeyError, TypeError, ValueError, csv.Error) as error:
                raise ValueError(
                    f"{self.path} exists and is not a table of epochs ({error!r}); choose another file"
                ) from error

    def write(self, row: Mapping[str, Any]) -> None:
        """Adds the row's values to its epoch's line, and drops lines of later epochs."""
        number, values = int(row["epoch"]), {**scalars(row), **texts(row)}
        self.rows = {epoch: kept for epoch, kept in self.rows.items() if epoch <= number}
        self.rows[number] = {**self.rows.get(number, {}), "epoch": number, **values}
        names = dict.fromkeys(name for kept in self.rows.values() for name in kept)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with overwrite(self.path, newline="") as file:
            table = csv.DictWriter(file, names, lineterminator="\n")
            table.writeheader()
            table.writerows(self.rows.values())


class TensorBoard:
    """Rows as TensorBoard scalars and histograms, one step per epoch. Needs ``torchcurriculum[tensorboard]``.

    Args:
        folder: The run's folder; look at it with ``tensorboard --logdir``.
    """

    def __init__(self, folder: str | Path) -> None:
        with _needs("tensorboard", "tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self.writer = SummaryWriter(str(folder))

    def write(self, row: Mapping[str, Any]) -> None:
        """Writes numbers as scalars, losses and weights as histograms, and texts; flushes to disk."""
        for name, value in scalars(row).items():
            self.writer.add_scalar(name, value, row["epoch"])
        for name, word in texts(row).items():
            self.writer.add_text(name, word, row["epoch"])
        for name, bars in histograms(row).items():
            self._add_histogram(name, bars, float(row.get("rows", 1)), row["epoch"])
        self.writer.flush()

    def _add_histogram(self, name: str, bars: list[tuple[float, float, float]], rows: float, epoch: int) -> None:
        middles = [((low + high) / 2, share * rows) for low, high, share in bars]
        self.writer.add_histogram_raw(
            f"{name}_distribution",
            min=bars[0][0],
            max=bars[-1][1],
            num=rows,
            sum=sum(middle * count for middle, count in middles),
            sum_squares=sum(middle**2 * count for middle, count in middles),
            bucket_limits=[high for _, high, _ in bars],
            bucket_counts=[count for _, count in middles],
            global_step=epoch,
        )

    def close(self) -> None:
        """Closes the file."""
        self.writer.close()


class WandB:
    """Rows as a run of Weights & Biases. Needs ``torchcurriculum[wandb]``.

    Args:
        project: The project's name.
        mode: ``"offline"`` keeps the run on this machine (``wandb sync`` sends it later), ``"online"`` sends it.
        options: More for ``wandb.init``: ``name``, ``dir``, ``config``, ``id`` and ``resume``, ...
    """

    def __init__(self, project: str, mode: Literal["offline", "online"] = "offline", **options: Any) -> None:
        with _needs("wandb", "wandb"):
            import wandb
        self.run = wandb.init(project=project, mode=mode, **options)

    def write(self, row: Mapping[str, Any]) -> None:
        """Logs numbers and texts of the row, at the step of its epoch."""
        self.run.log({**scalars(row), **texts(row)}, step=row["epoch"])

    def close(self) -> None:
        """Ends the run."""
        self.run.finish()


class MLflow:
    """Rows as metrics of an MLflow run. Needs ``torchcurriculum[mlflow]``.

    Newer versions of MLflow refuse a plain folder unless ``MLFLOW_ALLOW_FILE_STORE=true``; this class sets it only
    while it opens the folder. To view such a folder, run ``MLFLOW_ALLOW_FILE_STORE=true mlflow ui``.

    Args:
        uri: A folder, or the address of a tracking server or data base.
        experiment: The experiment's name; created if missing.
        run_id: A run to resume, or None for a new one.
        name: The new run's name.
    """

    def __init__(
        self, uri: str | Path, experiment: str = "torchcurriculum", run_id: str | None = None, name: str | None = None
    ) -> None:
        with _needs("mlflow", "mlflow"):
            from mlflow import MlflowClient
        with ENVIRONMENT, _environment("MLFLOW_ALLOW_FILE_STORE", "true"):
            self.client = MlflowClient(tracking_uri=str(uri))
            found = self.client.get_experiment_by_name(experiment)
            place = self.client.create_experiment(experiment) if found is None else found.experiment_id
            self.run_id = run_id or self.client.create_run(place, run_name=name).info.run_id

    def write(self, row: Mapping[str, Any]) -> None:
        """Logs numbers as metrics at the step of their epoch, and texts as tags."""
        from mlflow.entities import Metric, RunTag

        now, step = int(1000 * time.time()), row["epoch"]
        metrics = [Metric(name, value, now, step) for name, value in scalars(row).items()]
        tags = [RunTag(name, word) for name, word in texts(row).items()]
        self.client.log_batch(self.run_id, metrics, tags=tags)  # one request if this is a server

    def close(self) -> None:
        """Ends the run."""
        self.client.set_terminated(self.run_id)


@contextmanager
def _needs(package: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ImportError(f"this sink needs {package}: pip install 'torchcurriculum[{extra}]'") from error


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
