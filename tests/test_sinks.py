"""Rows reach CSV, TensorBoard, W&B and MLflow, offline; a tracker that is down does not end a run."""

from __future__ import annotations

import csv
import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchcurriculum import APW, Arrays, Curriculum, Record
from torchcurriculum.record.sinks import CSV, MLflow, TensorBoard, WandB, histograms, scalars, texts

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:wandb.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow.*"),
]

ROWS: list[dict[str, Any]] = [
    {"epoch": 1, "rho": 0.875, "phase": "early", "loss_quantiles": [0.125, 2.5], "seconds": 1},
    {"epoch": 2, "rho": 0.4375, "phase": "later", "loss_quantiles": [0.0625, 1.5], "seconds": 1},
]


def fed(sink: Any) -> Record:
    record = Record(3)
    record.attach(sink)
    for row in ROWS:
        record.append(row)
        record.annotate(test_acc=row["rho"] / 2)
    return record


def lines(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.csv"
    fed(CSV(path))
    table = lines(path)
    assert [line["rho"] for line in table] == ["0.875", "0.4375"]
    assert [line["test_acc"] for line in table] == ["0.4375", "0.21875"]
    assert [line["phase"] for line in table] == ["early", "later"]
    assert table[1]["loss_quantiles/1"] == "1.5"
    CSV(path).write({"epoch": 2, "rho": 0.25})  # a resumed run does its second epoch again
    CSV(path).write({"epoch": 3, "rho": 0.125})
    assert [line["rho"] for line in lines(path)] == ["0.875", "0.25", "0.125"]
    CSV(path).write({"epoch": 1, "rho": 0.5})
    assert [line["rho"] for line in lines(path)] == ["0.5"]


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"epoch\nsecond\n", b"epoch\n\xff\n", b"epoch,a\n,2\n"])
def test_a_file_that_is_no_table_of_epochs_is_left_alone(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"notes\.csv exists and is not a table of epochs"):
        CSV(tmp_path / "notes.csv")
    assert (tmp_path / "notes.csv").read_bytes() == content


def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoard(tmp_path)
    fed(sink)
    events = EventAccumulator(str(tmp_path))
    events.Reload()  # before it is closed: what was written is on the disk
    assert [(event.step, event.value) for event in events.Scalars("rho")] == [(1, 0.875), (2, 0.4375)]
    assert [event.value for event in events.Scalars("test_acc")] == [0.4375, 0.21875]
    assert events.Scalars("loss_quantiles/1")[1].value == 1.5
    assert "phase/text_summary" in events.Tags()["tensors"]
    sink.close()


def test_tensorboard_histograms(tmp_path: Path) -> None:
    EventAccumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    sink, quantiles = TensorBoard(tmp_path), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0]
    sink.write({"epoch": 3, "rows": 200, "loss_quantiles": quantiles, "weight_quantiles": [1.0] * 7})
    sink.write({"epoch": 4, "rows": 200, "loss_quantiles": [0.1, 2.0]})
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (found,) = events.Histograms("loss_distribution")
    value = found.histogram_value
    assert (found.step, value.min, value.max, value.num) == (3, 0.0, 5.0, 200)
    assert value.bucket_limit == quantiles[1:]
    assert value.bucket == pytest.approx([10, 40, 50, 50, 40, 10])
    (equal,) = events.Histograms("weight_distribution")
    assert (equal.histogram_value.bucket_limit, equal.histogram_value.num) == ([1.0], 200)
    sink.close()


@pytest.mark.parametrize("values", [None, [0.0] * 6, [0.0] * 6 + [float("nan")], [0.0] * 6 + ["x"]])
def test_no_histogram_of_anything_else(values: Any) -> None:
    assert histograms({"loss_quantiles": values}) == {}


def test_the_last_values_that_are_the_same_belong_to_the_last_bar() -> None:
    bars = histograms({"weight_quantiles": [0.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]})["weight"]
    assert bars == [(0.0, 1.0, 0.05), (1.0, 2.0, pytest.approx(0.95))]


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    sink = MLflow(tmp_path / "runs", name="first")
    fed(sink)
    sink.close()
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ
    history = sink.client.get_metric_history(sink.run_id, "rho")
    assert [(point.step, point.value) for point in history] == [(1, 0.875), (2, 0.4375)]
    run = sink.client.get_run(sink.run_id)
    assert (run.data.tags["phase"], run.info.status, run.info.run_name) == ("later", "FINISHED", "first")
    assert run.data.metrics["test_acc"] == 0.21875
    again = MLflow(tmp_path / "runs", run_id=sink.run_id)
    again.write({"epoch": 3, "rho": 0.25})
    assert len(sink.client.get_metric_history(sink.run_id, "rho")) == 3
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "false")
    MLflow(tmp_path / "runs")
    assert os.environ["MLFLOW_ALLOW_FILE_STORE"] == "false"


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    sink = WandB("project", dir=str(tmp_path), name="run")
    fed(sink)
    sink.close()
    wandb.teardown()  # as the end of a script does: waits for W&B's own process, which writes the file
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    stored = path.read_bytes()
    for value in (0.875, 0.4375, 0.21875, 0.0625, "early", "later"):
        assert json.dumps(value).encode() in stored


class Down:
    """A tracker nobody can reach."""

    def write(self, row: Mapping[str, Any]) -> None:
        raise ConnectionError("no route to host")


def test_a_sink_that_fails_does_not_end_the_run(tmp_path: Path) -> None:
    record = Record(3)
    record.attach(Down())
    record.attach(CSV(tmp_path / "run.csv"))
    with pytest.warns(UserWarning, match=r"Down failed on epoch 1 \(ConnectionError\('no route"):
        record.append(ROWS[0])
    assert len(record.epochs) == len(CSV(tmp_path / "run.csv").rows) == 1
    with pytest.raises(TypeError, match=r"a sink needs a method write\(row\), which str lacks"):
        record.attach("runs/")


def test_a_record_is_pickled_without_its_sinks() -> None:
    record = Record(3)
    record.attach(Down())
    again = pickle.loads(pickle.dumps(record))
    again.append(ROWS[0])
    assert len(again.epochs) == 1


def test_a_curriculum_feeds_its_sinks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 4)
    model = nn.Linear(4, 2)
    curriculum = Curriculum(APW(40, q=3), Arrays(x, (x[:, 0] > 0).long()), batch_size=10)
    curriculum.record.attach(CSV(tmp_path / "run.csv"))
    for _ in range(3):
        for batch in curriculum.epoch(model):
            curriculum.loss(model, batch)
        curriculum.record.annotate(accuracy=1.0)
    table = lines(tmp_path / "run.csv")
    assert [float(line["rho"]) for line in table] == curriculum.record.column("rho").tolist()
    assert [line["accuracy"] for line in table] == ["1.0"] * 3


def test_what_is_a_number_and_what_a_word() -> None:
    row = {"epoch": 3, "a": np.float32(0.5), "b": True, "c": None, "d": "word", "e": [1, None, 2.5], "f": {"g": 1}}
    assert scalars(row) == {"a": 0.5, "b": 1.0, "e/0": 1.0, "e/2": 2.5}
    assert texts(row) == {"d": "word"}
