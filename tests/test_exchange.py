"""Proposals for other tools, read by these tools where they are installed, and answers that come back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from xml.etree import ElementTree

import pytest

from torchcurriculum.clean import Proposal, Source, Suspect, digest
from torchcurriculum.clean.decisions import Decision, Decisions
from torchcurriculum.clean.exchange import read_answers, write_for
from torchcurriculum.clean.fix import Fix, planned

from .test_review import DOT, proposal

VALUES = dataclasses.replace(
    proposal(), rows=[dataclasses.replace(row, show={"values": {"a": "1", "b": "<x>"}}) for row in proposal().rows]
)


@pytest.fixture
def pictures(tmp_path: Path) -> Proposal:
    image = pytest.importorskip("PIL.Image", reason="needs pillow")
    folder, rows = tmp_path / "pets", []
    for number in range(6):
        given, other = ("cat", "=dog") if number % 2 else ("=dog", "cat")
        (folder / given).mkdir(parents=True, exist_ok=True)
        image.new("RGB", (8, 8), (40 * number, 0, 0)).save(folder / given / f"{number}.png")
        shown = {"picture": DOT}
        rows.append(Suspect(number, given, other, 0.1, f"{given}/{number}.png", 0.8, number < 2, "Why.", shown))
    return Proposal(Source(str(folder), "pictures", digest(folder)), ["=dog", "cat"], 6, rows)


# ---------------------------------------------------------------------- Label Studio


@pytest.mark.parametrize("kind", ["text", "values", "pictures"])
def test_tasks_and_their_interface_agree(pictures: Proposal, tmp_path: Path, kind: str) -> None:
    shown = {"text": proposal(), "values": VALUES, "pictures": pictures}[kind]
    tasks_path, xml_path = write_for("label-studio", shown, tmp_path / "ls")
    tasks, view = json.loads(tasks_path.read_text()), ElementTree.parse(xml_path).getroot()
    tag, field = {"text": ("Text", "text"), "values": ("Table", "values"), "pictures": ("Image", "image")}[kind]
    sample = view.find(tag)
    assert sample is not None
    assert sample.get("value") == f"${field}"
    choices = next(part for part in view.iter("Choices") if part.get("name") == "label")
    labels = [choice.get("value") for choice in choices]
    assert labels == shown.classes
    assert [task["data"]["row"] for task in tasks] == [row.row for row in shown.rows]
    for task, row in zip(tasks, shown.rows, strict=True):
        assert task["data"][field]
        assert task["data"]["given_label"] == row.given
        suggested = [part["value"]["choices"] for one in task.get("predictions", []) for part in one["result"]]
        assert suggested == ([] if row.suggested is None else [[row.suggested]])


def test_the_sdk_of_label_studio_takes_them(pictures: Proposal, tmp_path: Path) -> None:
    sdk = pytest.importorskip("label_studio_sdk.label_interface", reason="needs label-studio-sdk")
    for name, shown in {"text": proposal(), "values": VALUES, "pictures": pictures}.items():
        tasks, xml = write_for("label-studio", shown, tmp_path / name)
        interface = sdk.LabelInterface(xml.read_text())
        interface.validate()
        for task in json.loads(tasks.read_text()):
            assert interface.validate_task({"data": task["data"]})
            for prediction in task.get("predictions", []):
                assert not interface.validate_prediction(prediction, return_errors=True)


def answer(row: int, **chosen: str) -> dict[str, Any]:
    """A task as Label Studio exports it, see its guide on the task format."""
    result = [
        {"id": "x", "from_name": name, "to_name": "sample", "type": "choices", "value": {"choices": [choice]}}
        for name, choice in chosen.items()
    ]
    return {"id": row, "data": {"row": row}, "annotations": [{"id": 1, "was_cancelled": False, "result": result}]}


EXPECTED = [
    Decision(0, "cat", "accept", "dog", "row 0"),
    Decision(7, "dog", "keep", None, "row 1"),
    Decision(14, "=bird", "drop", None, "row 2"),
    Decision(21, "cat", "other", "new", "row 3"),
]


def test_answers_of_label_studio_come_back(tmp_path: Path) -> None:
    skipped = answer(28, label="cat")
    skipped["annotations"][0]["was_cancelled"] = True
    twice = answer(0, label="cat")
    twice["annotations"] += answer(0, label="dog")["annotations"]
    long = [
        twice,
        answer(7, label="dog"),
        answer(14, remove="drop this row", label="dog"),
        answer(21, label="new"),
        skipped,
        {"id": 9, "data": {"row": 35}, "annotations": []},
    ]
    short = [
        {"id": 1, "row": 0, "text": "t", "label": "dog"},
        {"id": 2, "row": 7, "label": {"choices": ["dog"]}},
        {"id": 3, "row": 14, "label": "dog", "remove": "drop this row"},
        {"id": 4, "row": 21, "label": "new"},
        {"id": 5, "row": 28},
    ]
    for held in (long, short):
        (tmp_path / "answers.json").write_text(json.dumps(held))
        assert read_answers(proposal(), tmp_path / "answers.json") == Decisions.of(proposal(), EXPECTED)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({}, "a list of tasks"),
        ([1], "a list of tasks"),
        ([{"data": 3}], "no (row number|number of a row)"),
        ([answer(1, label="cat")], "row 1 is not in the proposal"),
        ([{"fields": {}, "id": "x", "responses": {}}], "a record has no row number"),
    ],
)
def test_other_answers_are_refused(tmp_path: Path, held: Any, message: str) -> None:
    (tmp_path / "answers.json").write_text(json.dumps(held))
    with pytest.raises(ValueError, match=f"answers.json holds no usable answers: .*{message}"):
        read_answers(proposal(), tmp_path / "answers.json")


# ---------------------------------------------------------------------- Argilla


def responded(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records as ``dataset.records.to_json`` writes them after people answered."""
    given = {"0": {"label": "dog"}, "7": {"label": "dog"}, "14": {"leave_out": "drop"}, "21": {"label": "new"}}
    for record in records:
        answers = given.get(record["id"], {})
        record["responses"] = {name: [{"value": value, "user_id": "u"}] for name, value in answers.items()}
    return records


def test_answers_of_argilla_come_back(tmp_path: Path) -> None:
    _, path = write_for("argilla", proposal(), tmp_path)
    path.write_text(json.dumps(responded(json.loads(path.read_text()))))
    assert read_answers(proposal(), path) == Decisions.of(proposal(), EXPECTED)


def test_argilla_takes_them(pictures: Proposal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argilla = pytest.importorskip("argilla", reason="needs argilla")
    monkeypatch.setattr(argilla.Argilla, "_default_client", MagicMock())  # it would ask a server for its version
    for name, shown in {"text": proposal(), "pictures": pictures}.items():
        settings, records = write_for("argilla", shown, tmp_path / name)
        dataset = argilla.Dataset(name="suspects", settings=argilla.Settings.from_json(settings))
        dataset.settings.validate()
        made = [argilla.Record.from_dict(one) for one in json.loads(records.read_text())]
        models = dataset.records._ingest_records(made)
        assert [model.suggestions[0].value for model in models[:2]] == [row.suggested for row in shown.rows[:2]]
        assert {question.name for question in dataset.settings.questions} == {"label", "leave_out"}


# ---------------------------------------------------------------------- FiftyOne, datasets


def test_fiftyone_reads_given_and_suggested_labels(pictures: Proposal, tmp_path: Path) -> None:
    (path,) = write_for("fiftyone", pictures, tmp_path / "fo")
    held = json.loads(path.read_text())
    first = pictures.rows[0]
    assert held["labels"][f"{pictures.source.path}/{first.id}"]["attributes"]["suggested"] == first.suggested
    with pytest.raises(ValueError, match="FiftyOne shows only pictures, but /data/pets.csv is a table"):
        write_for("fiftyone", proposal(), tmp_path)
    importers = pytest.importorskip("fiftyone.utils.data", reason="needs fiftyone")
    with importers.FiftyOneImageClassificationDatasetImporter(labels_path=str(path)) as importer:
        found = {file: label for file, _, label in importer}
    assert {file: label.label for file, label in found.items()} == {
        f"{pictures.source.path}/{row.id}": row.given for row in pictures.rows
    }
    assert {label.suggested for label in found.values()} == {"=dog", "cat"}


def test_datasets_load_suspects_and_corrected_pictures(pictures: Proposal, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    options = {"split": "train", "cache_dir": str(tmp_path / "cache")}
    (path,) = write_for("datasets", pictures, tmp_path / "hf")
    loaded = datasets.load_dataset("json", data_files=str(path), **options).cast_column("image", datasets.Image())
    assert loaded["given"] == [row.given for row in pictures.rows]
    assert loaded[0]["image"].size == (8, 8)
    (path,) = write_for("datasets", VALUES, tmp_path / "values")
    loaded = datasets.load_dataset("json", data_files=str(path), **options)
    assert loaded[0]["values"] == {"a": "1", "b": "<x>"}
    out, _ = Fix(pictures.source, planned(pictures)).write(tmp_path / "fixed")
    fixed = datasets.load_dataset("imagefolder", data_dir=str(out), **options)
    names = fixed.features["label"].names
    assert sorted(names[label] for label in fixed["label"]) == ["=dog"] * 3 + ["cat"] * 3
    with pytest.raises(ValueError, match="unknown form 'xml'; known: label-studio, argilla, fiftyone, datasets"):
        write_for("xml", pictures, tmp_path)
