"""`curriculum clean`: messy tables, odd pictures and texts, written here, are read as their owner means them."""

from __future__ import annotations

import csv
import dataclasses
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchcurriculum.audit import audit
from torchcurriculum.clean.command import clean, propose, without_unlearnt
from torchcurriculum.clean.csvfile import Layout, find_layout
from torchcurriculum.clean.decisions import Decision, Decisions
from torchcurriculum.clean.folds import Folds, fold_numbers, train_folds
from torchcurriculum.clean.pictures import open_picture, read_pictures
from torchcurriculum.clean.reading import read
from torchcurriculum.clean.tables import read_table
from torchcurriculum.clean.text import read_texts, text_features
from torchcurriculum.clean.userdata import Column, UserData
from torchcurriculum.clean.views import sure_labels, train_views, two_views
from torchcurriculum.cli import main

from . import official

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("pandas")

ROWS = 120


def write(
    path: Path,
    columns: dict[str, Callable[[int], str]],
    rows: int = ROWS,
    sep: str = ",",
    encoding: str = "utf-8",
    label: Callable[[int], str] = lambda row: "ab"[row % 2],
) -> Path:
    cells = [[*columns, "label"], *([*(make(row) for make in columns.values()), label(row)] for row in range(rows))]
    path.write_bytes(("\r\n".join(sep.join(line) for line in cells) + "\r\n").encode(encoding))
    return path


def number(row: int) -> float:
    """Numbers without an order that follow from the row."""
    return random.Random(row).uniform(-3, 3)


def taken(path: Path, **options: object) -> dict[str, str]:
    return {one.name: one.taken for one in read_table(path, **options).columns}  # type: ignore[arg-type]


# ---------------------------------------------------------------------- columns


def test_a_misspelt_column_of_many_is_told_the_nearest_names(tmp_path: Path) -> None:
    path = write(tmp_path / "wide.csv", {f"feature_{place}": lambda row: str(number(row)) for place in range(300)})
    with pytest.raises(ValueError, match=r"has no column 'Lable'; it has label, .* and 293 more$"):
        read_table(path, label="Lable")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda row: f"{number(row):.3f}", "number"),
        (lambda row: f'"{1000 * abs(number(row)):,.1f}"', "number"),
        (lambda row: f"{1000 * abs(number(row)):,.1f}".replace(",", "'"), "number"),
        (lambda row: f"$ {number(row):.2f}", "number"),
        (lambda row: f"{number(row):.1f} %", "number"),
        (lambda row: "n/a" if row % 7 == 0 else f"{number(row):.1e}", "number"),
        (lambda row: "?" if row % 50 == 3 else str(row % 9), "number"),
        (lambda row: ("yes", "No")[row % 3 == 0], "yes/no"),
        (lambda row: ("TRUE", "false", "")[row % 3], "yes/no"),
        (lambda row: f"2024-{1 + row % 12:02}-{1 + row % 28:02}", "date"),
        (lambda row: f"{1 + row % 28:02}.{1 + row % 12:02}.2024 13:{row % 60:02}", "date"),
        (lambda row: f"{1 + row % 12}/{1 + row % 28}/2024", "date"),
        (lambda row: f"{1 + row % 28} Mar 20{10 + row % 9}", "date"),
        (lambda row: ("red", "green", "", "blue")[row % 4], "category"),
        (lambda row: f"0{1000 + row % 7}", "category"),
        (lambda row: f"customer {row} says that it is {number(row):.3f}", "text"),
        (lambda row: f"K-{row:04}", "id"),
        (lambda row: str(row), "id"),
        (lambda row: str(ROWS - row), "id"),
        (lambda row: str((row * 7) % ROWS + 5), "id"),
        (lambda row: "same", "left out"),
        (lambda row: "", "left out"),
        (lambda row: ("no", "yes")[row % 2], "left out"),
        (lambda row: ("north", "south")[row % 2], "left out"),
    ],
)
def test_every_kind_of_column(tmp_path: Path, make: Callable[[int], str], kind: str) -> None:
    path = write(tmp_path / "x.csv", {"it": make, "other": lambda row: str(number(row + 1000))})
    source = read_table(path, features="tfidf" if kind == "text" else None)
    found = {one.name: one.taken for one in source.columns}
    assert found == {"label": "label", "it": kind, "other": "number"}
    assert np.isfinite(source.features).all()
    assert source.features.dtype == np.float32
    assert set(source.groups.tolist()) == ({2} if kind in ("id", "left out") else {1, 2})


def test_numbers_of_every_land_are_the_same_numbers(tmp_path: Path) -> None:
    values = [1000 * abs(number(row)) + 1000 for row in range(ROWS)]
    forms = {
        "plain": lambda row: f"{values[row]:.1f}",
        "english": lambda row: f'"{values[row]:,.1f}"',
        "swiss": lambda row: f"{values[row]:,.1f}".replace(",", "’"),
    }
    german = {"german": lambda row: f"{values[row]:,.1f}".translate(str.maketrans(",.", ".,"))}
    english = read_table(write(tmp_path / "a.csv", forms)).features
    assert np.array_equal(english[:, 0], english[:, 1])
    assert np.array_equal(english[:, 0], english[:, 2])
    there = read_table(write(tmp_path / "b.csv", german, sep=";"))
    assert np.array_equal(there.features[:, 0], english[:, 0])
    assert "decimal comma" in there.message()


def test_thousands_that_could_be_fractions_follow_the_rest_of_the_file(tmp_path: Path) -> None:
    columns = {"count": lambda row: f"{row % 9 + 1}.{(row * 37) % 900 + 100}", "size": lambda row: f"{row % 7},5"}
    with_commas = read_table(write(tmp_path / "a.csv", columns, sep=";"))
    alone = read_table(write(tmp_path / "b.csv", {"count": columns["count"]}, sep=";"))
    first = [one.why for one in with_commas.columns if one.name == "count"]
    assert "decimal comma" in first[0]
    assert "comma" not in alone.message()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
def test_encodings_and_separators_are_found_out(tmp_path: Path, encoding: str, sep: str) -> None:
    columns = {"größe": lambda row: str(number(row)), "straße": lambda row: ("Köln", "Zürich")[row % 3 == 0]}
    path = write(tmp_path / "x.csv", columns, 40, sep, encoding)
    assert find_layout(path) == Layout(encoding, sep)
    source = read_table(path)
    assert [one.name for one in source.columns] == ["label", "größe", "straße"]
    assert source.show(0)["values"]["straße"] == "Zürich"
    assert source.ids[:2] == ["line 2", "line 3"]
    assert (source.layout["separator"], source.layout["encoding"]) == (sep, encoding)


def test_quotes_in_tab_separated_text_stand_for_themselves(tmp_path: Path) -> None:
    lines = ["sentence\tlabel", *(f'"what a {row} film\t{row % 2}' for row in range(ROWS))]
    (tmp_path / "x.tsv").write_text("\n".join(lines) + "\n")
    source = read_table(tmp_path / "x.tsv", features="tfidf")
    assert len(source) == ROWS
    assert source.show(3)["text"] == '"what a 3 film'


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    rows = [f'{number(row)},"two\nlines",{"ab"[row % 2]}' for row in range(20)]
    (tmp_path / "x.csv").write_text("a,note,label\n\n" + "\n".join(rows) + "\n")
    source = read_table(tmp_path / "x.csv")
    assert source.ids[:3] == ["line 4", "line 6", "line 8"]
    assert source.rows[:3].tolist() == [0, 1, 2]


def test_an_index_of_a_sorted_file_is_left_out(tmp_path: Path) -> None:
    columns = {"": str, "time": lambda row: str(1_600_000_000 + row * row), "x": lambda row: str(number(row))}
    half = lambda row: "ab"[row >= ROWS // 2]  # noqa: E731
    path = write(tmp_path / "x.csv", columns, label=half)
    assert taken(path) == {"label": "label", "(no name)": "id", "time": "left out", "x": "number"}
    assert "would leak the label" in read_table(path).message()
    path = write(tmp_path / "y.csv", columns)
    assert taken(path)["time"] == "number", "in a file that is not sorted by the label, a time is a feature"


def test_flags_overrule(tmp_path: Path) -> None:
    columns = {"a": lambda row: str(number(row)), "b": lambda row: "xy"[row % 3 == 0], "c": lambda row: f"n{row // 2}"}
    path = write(tmp_path / "x.csv", columns)
    source = read_table(path, label="b", id="c", drop=["label"])
    assert source.classes == ["x", "y"]
    assert source.ids[4] == "n2"
    assert {one.name: one.taken for one in source.columns} == {
        "b": "label",
        "a": "number",
        "c": "id",
        "label": "left out",
    }
    for options, words in (
        ({"label": "z"}, "has no column 'z'; it has a, b, c, label"),
        ({"drop": ["z"]}, "has no column 'z'"),
        ({"id": "label"}, "the column 'label' holds the classes"),
        ({"features": "tfidf"}, "no column of this table holds text"),
        ({"sep": ";"}, "must name two or more columns"),
        ({"encoding": "nonsense"}, "unknown encoding 'nonsense'"),
        ({"encoding": "utf-16"}, "is not text in utf-16"),
    ):
        with pytest.raises(ValueError, match=words):
            read_table(path, **options)  # type: ignore[arg-type]


def test_rows_that_cannot_be_used_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", {"a": lambda row: str(number(row)), "b": lambda row: str(number(row + 500))}, 30)
    with open(path, "a", newline="") as file:
        file.write("1,2,\r\n1,2\r\n1,2,3,a\r\n1,2,rare\r\n1,2,a\r\n")
    source = read_table(path)
    assert source.rows.tolist() == [*range(30), 34]
    assert source.skipped == [
        ("line 32", "it has no label"),
        ("line 33", "it has 2 cells, not 3"),
        ("line 34", "it has 4 cells, not 3"),
        ("line 35", "its class has fewer than 5 rows"),
    ]
    assert "left out, it has no label: line 32" in source.message()
    with pytest.raises(ValueError, match=r"3 rows that cannot be used \(--strict\); line 32: it has no label"):
        read_table(path, strict=True)


def test_classes_that_look_alike_and_labels_that_are_numbers(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.csv", {"a": lambda row: str(number(row))}, label=lambda row: ("cat", "Cat ", "dog")[row % 3]
    )
    assert "the classes 'Cat' and 'cat' are treated as different" in read_table(path).message()
    for one, other in (("1", "1.0"), ("01", "1"), ("caf\u00e9", "cafe\u0301"), ("\uff21", "a")):
        pair = {0: one, 1: other, 2: "dog"}
        path = write(
            tmp_path / "z.csv", {"a": lambda row: str(number(row))}, label=lambda row, pair=pair: pair[row % 3]
        )
        found = [note for note in read_table(path).message().splitlines() if "are treated as different" in note]
        assert len(found) == 1, one
        assert repr(one) in found[0]
        assert repr(other) in found[0]
    path = write(tmp_path / "y.csv", {"a": lambda row: str(number(row))}, 300, label=lambda row: f"{row % 100}.5")
    with pytest.raises(ValueError, match="100 different values in 300 rows, all numbers, so it holds no classes"):
        read_table(path)


@pytest.mark.parametrize("name", ["annotator", "Labeler_ID", "labeled by", "rater", "worker_id", "batch"])
def test_a_column_of_who_gave_the_label_is_named(name: str, tmp_path: Path) -> None:
    columns = {"operator": lambda row: "abc"[row % 3], "a": lambda row: str(number(row))}
    path = write(
        tmp_path / "x.csv", {**columns, name: lambda row: f"p{row % 5}"}, label=lambda row: ["no", "yes"][row % 2]
    )
    message = read_table(path).message()
    assert f"{name} seems to say who gave a label; mistakes that follow it are missed: --drop {name!r}" in message
    assert "operator seems" not in message


def test_parquet_is_read_with_its_types(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(
        {
            "when": pandas.date_range("2024-01-01", periods=60, freq="7h"),
            "size": [None if row % 9 == 0 else number(row) for row in range(60)],
            "fine": [row % 3 == 0 for row in range(60)],
            "kind": pandas.Categorical(["x" if row % 5 else "y" for row in range(60)]),
            "label": [row % 2 for row in range(60)],
        }
    )
    frame.to_parquet(tmp_path / "x.parquet")
    source = read_table(tmp_path / "x.parquet")
    kinds = {one.name: one.taken for one in source.columns}
    assert kinds == {"label": "label", "when": "date", "size": "number", "fine": "yes/no", "kind": "category"}
    assert source.classes == ["0", "1"]
    assert source.layout["encoding"] is None if "encoding" in source.layout else True
    with pytest.raises(ValueError, match="--sep and --encoding are for text"):
        read_table(tmp_path / "x.parquet", sep=";")


# ---------------------------------------------------------------------- pictures and texts


def shapes(folder: Path, of_each: int = 14) -> Path:
    """Circles and stripes of many kinds of file."""
    across, down = np.meshgrid(np.arange(40), np.arange(30))
    for name in ("round", "striped"):
        (folder / name).mkdir(parents=True)
        for row in range(of_each):
            draw = random.Random(f"{name}{row}")
            middle = (draw.randint(12, 28), draw.randint(10, 20))
            disk = (across - middle[0]) ** 2 + (down - middle[1]) ** 2 < draw.randint(30, 60)
            bright = 255 * (disk if name == "round" else (across + row) % 8 < 4).astype(np.uint8)
            kind = row % 7
            grey = Image.fromarray(bright)
            path = folder / name / f"{row}"
            if kind == 0:
                grey.save(f"{path}.png")
            elif kind == 1:
                grey.convert("RGBA").save(f"{path}.png")
            elif kind == 2:
                grey.convert("P").save(f"{path}.gif")
            elif kind == 3:
                Image.fromarray(bright.astype(np.uint16) * 256).save(f"{path}.png")
            elif kind == 4:
                exif = Image.Exif()
                exif[0x0112] = 6
                grey.rotate(90, expand=True).convert("RGB").save(f"{path}.jpg", exif=exif, quality=95)
            elif kind == 5:
                grey.convert("CMYK").save(f"{path}.tiff")
            else:
                grey.convert("LA").resize((17, 60)).save(f"{path}.png")
    return folder


def test_pictures_of_every_kind(tmp_path: Path) -> None:
    folder = shapes(tmp_path / "data")
    (folder / "round" / "broken.jpg").write_bytes(b"\xff\xd8 not a picture")
    (folder / "round" / "notes.doc").write_text("x")
    (folder / ".hidden").mkdir()
    upright = np.asarray(open_picture(folder / "striped" / "4.jpg").convert("L")).astype(int)
    plain = np.asarray(open_picture(folder / "striped" / "0.png").convert("L")).astype(int)
    assert upright.shape == plain.shape == (30, 40), "turned as its EXIF data say"
    assert np.abs(np.roll(plain, -4, 1) - upright)[:, 8:-8].mean() < 30
    source = read_pictures(folder)
    assert source.classes == ["round", "striped"]
    assert len(source) == 28
    assert source.skipped[0][0] == "round/broken.jpg"
    assert "cannot be read as an image" in source.skipped[0][1]
    assert source.ids[0] == "round/0.png"
    assert source.show(0)["picture"].startswith(b"\xff\xd8")
    found = train_folds(source.features, source.labels, 2, kinds=("network", "linear"))
    assert (found.probabilities.argmax(1) == source.labels).mean() > 0.8
    (folder / "round" / "notes.doc").unlink()
    with pytest.raises(ValueError, match=r"broken.jpg cannot be read as an image: .* \(--strict\)"):
        read_pictures(folder, strict=True)
    with pytest.raises(ValueError, match="--features resnet9000 is neither a file"):
        read_pictures(folder, features="resnet9000")


@pytest.mark.parametrize("names", ["train validation", "Train Val Test", "train dev", "training eval"])
def test_folders_of_parts_by_any_name(tmp_path: Path, names: str) -> None:
    folder = tmp_path / "data"
    for part in names.split():
        shapes(folder / part, of_each=5)
    shutil.copytree(folder / names.split()[-1] / "round", folder / "test", dirs_exist_ok=True)  # without labels
    source = read_pictures(folder)
    assert source.classes == ["round", "striped"]
    assert len(source) == 10 * len(names.split())
    count = len(source) // 2
    assert f"folders   label     'round' {count}, 'striped' {count}" in source.message()
    assert [reason for _, reason in source.skipped] == ["it is in no class folder"] * 5
    with pytest.raises(ValueError, match=r"cannot be used \(--strict\): it is in no class folder"):
        read_pictures(folder, strict=True)
    (folder / names.split()[0]).rename(folder / "more")
    with pytest.raises(ValueError, match=r"both .* hold 'round', so it is not clear which folders are the classes"):
        read_pictures(folder)


def test_other_files_of_class_folders_are_listed(tmp_path: Path) -> None:
    folder = shapes(tmp_path / "data", of_each=7)
    for suffix in ("jfif", "jpe"):
        shutil.copy(folder / "round" / "4.jpg", folder / "round" / f"x.{suffix}")
    for name in ("a.heic", "b.HEIC", "c.avif", "README", ".DS_Store"):
        (folder / "striped" / name).write_bytes(b"x")
    (folder / "labels.csv").touch()
    source = read_pictures(folder)
    assert len(source) == 16
    assert source.skipped == [
        ("striped/README", "files without a suffix are not read"),
        ("striped/a.heic", ".heic files are not read"),
        ("striped/b.HEIC", ".heic files are not read"),
        ("striped/c.avif", ".avif files are not read"),
    ]
    assert "left out, .heic files are not read: striped/a.heic, striped/b.HEIC\n" in source.message()
    with pytest.raises(ValueError, match=r"README cannot be used \(--strict\): files without a suffix are not read"):
        read_pictures(folder, strict=True)


def test_a_broken_picture_does_not_end_a_run_and_leaves_the_folder_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchcurriculum.lab.sources import MODELS

    small = [torch.nn.Conv2d(3, 4, 3, 4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 2)]
    monkeypatch.setitem(MODELS, "small", lambda problem: torch.nn.Sequential(*small))
    folder = official.image_folder(tmp_path / "data")
    (folder / "cats" / "broken.png").write_bytes(b"nothing")
    out = tmp_path / "runs"
    asked = ["run", "image-folder", "--model", "small", "--seeds", "0", "--epochs", "1", "--method", "vanilla"]
    with pytest.warns(UserWarning, match=r"1 pictures in .* cannot be used and are left out: .*broken.png"):
        assert main([*asked, "--data", str(folder), "--out", str(out)]) == 0
    (folder / "cats" / "broken.png").unlink()
    assert main([*asked, "--data", str(folder), "--out", str(out)]) == 2
    assert "on other data" in capsys.readouterr().err
    from torchcurriculum import Record

    shutil.rmtree(out / "vanilla")
    Record(3, {}, out / "vanilla" / "seed-0").flush()  # as of a run that ended before its first epoch
    assert main([*asked, "--data", str(folder), "--out", str(out)]) == 0


def test_a_pretrained_network_is_found_by_its_weights(tmp_path: Path) -> None:
    import safetensors.torch

    from torchcurriculum.clean.efficientnet import EfficientNetB0

    torch.manual_seed(0)
    safetensors.torch.save_file(EfficientNetB0().state_dict(), tmp_path / "w.safetensors")
    source = read_pictures(shapes(tmp_path / "data", of_each=5), features=str(tmp_path / "w.safetensors"))
    assert "pretrained network in w.safetensors" in source.message()
    assert source.features.shape == (10, 10)


def test_texts_in_folders(tmp_path: Path) -> None:
    for name, words in (("ham", "meeting at noon"), ("spam", "win a prize now")):
        (tmp_path / name).mkdir()
        for row in range(8):
            (tmp_path / name / f"{row}.txt").write_bytes(f"{words} für {row}".encode("cp1252" if row % 2 else "utf-8"))
    (tmp_path / "ham" / "empty.txt").touch()
    (tmp_path / "ham" / "binary.txt").write_bytes(b"\0\1")
    source = read(tmp_path, features="tfidf")
    assert source.kind == "text"
    assert source.show(1)["text"] == "meeting at noon für 1"
    assert {name for name, _ in source.skipped} == {"ham/empty.txt", "ham/binary.txt"}
    with pytest.raises(ValueError, match=r"binary.txt cannot be read \(--strict\): it is not text"):
        read_texts(tmp_path, strict=True)
    with pytest.raises(ValueError, match="--label is for tables"):
        read(tmp_path, label="x")
    with pytest.raises(ValueError, match="--features for text must be one of minilm, tfidf, got 'bert'"):
        text_features(["a"], "bert")


# ---------------------------------------------------------------------- folds and the command


def test_folds_hold_out_every_row_once_and_equal_rows_together() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 400)
    features = draw.normal(size=(400, 4)).astype(np.float32)
    features[200:] = features[:200]
    held = fold_numbers(labels, features, 5, seed=3)
    assert np.array_equal(held[200:], held[:200])
    assert set(held.tolist()) == set(range(5))
    assert not np.array_equal(held, fold_numbers(labels, features, 5, seed=4))
    state, first = torch.get_rng_state(), train_folds(features, labels, 3, epochs=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(first.probabilities, train_folds(features, labels, 3, epochs=2).probabilities)
    assert first.probabilities.sum(1) == pytest.approx(np.ones(400), abs=1e-5)
    # Labels by chance cannot be told by who did not see them, though each row stands there twice.
    assert (first.probabilities.argmax(1) == labels).mean() < 0.5


def test_rows_are_judged_without_their_own_label() -> None:
    draw = np.random.default_rng(1)
    labels = np.repeat([0, 1], 150)
    features = (draw.normal(size=(300, 3)) + 4 * labels[:, None]).astype(np.float32)
    wrong = labels.copy()
    wrong[[3, 200]] = [1, 0]
    found = train_folds(features, wrong, 2).probabilities
    assert found[3].argmax() == 0
    assert found[200].argmax() == 1


def made(labels: np.ndarray, features: np.ndarray) -> UserData:
    """Data whose every feature is a column."""
    n, columns = features.shape
    return UserData(
        kind="table",
        path=Path("x.csv"),
        labels=labels,
        classes=["no", "yes"],
        ids=[f"line {row}" for row in range(n)],
        features=features.astype(np.float32),
        groups=np.arange(1, columns + 1),
        rows=np.arange(n),
    )


def test_a_fold_that_leaves_one_class_to_learn_from_tells_nothing() -> None:
    labels = np.repeat([0, 1], 10)
    found = train_folds(labels[:, None].astype(np.float32), labels, 2, kinds=("linear", "trees"))
    assert found.probabilities.tolist() == [[0.5, 0.5]] * 20


def test_exceptions_to_one_column_are_not_called_wrong() -> None:
    draw = np.random.default_rng(0)
    true = np.repeat([0, 1], 200)
    flips = np.arange(400) % 10 == 0
    given = np.where(flips, 1 - true, true)
    # All four columns tell the class: what contradicts both halves is a wrong label.
    clear = made(given, draw.normal(size=(400, 4)) + 4 * true[:, None])
    # One column tells the given label, with the same rows as exceptions; the others tell nothing.
    risky = made(given, np.column_stack([true + 0.1 * draw.normal(size=400), draw.normal(size=(400, 3))]))
    assert [len(part) for part in two_views(clear.features, clear.groups, given)] == [2, 2]
    for data, least, most in ((clear, 30, 40), (risky, 0, 0)):
        shares = train_folds(data.features, given, 2, kinds=("linear",)).probabilities
        found = audit(given, shares)
        assert found.issue.sum() > 30, "both look alike to a classifier of all columns"
        views = train_views(data)
        found = audit(given, shares, views=views)
        sure = sure_labels(found, views)
        assert (found.issue.sum() > 30) == (data is clear)
        assert least <= sure.sum() <= most
        assert not ((found.issue | sure) & ~flips).any()


def test_a_single_text_column_is_halved_by_its_directions() -> None:
    data = made(np.arange(100) % 2, np.random.default_rng(0).normal(size=(100, 4)))
    columns = [Column("label", "label", ""), Column("review", "text", "")]
    assert len(train_views(dataclasses.replace(data, groups=np.ones(4, int), columns=columns))) == 2
    columns[1] = Column("height", "number", "")
    assert train_views(dataclasses.replace(data, groups=np.ones(4, int), columns=columns)) == []


def test_columns_that_cannot_be_halved_call_nothing_wrong() -> None:
    draw = np.random.default_rng(0)
    true = np.repeat([0, 1], 200)
    given = np.where(np.arange(400) % 10 == 0, 1 - true, true)
    data = made(given, (draw.normal(size=400) + 6 * true)[:, None])
    shares = train_folds(data.features, given, 2, kinds=("linear",)).probabilities
    assert audit(given, shares).issue.sum() > 30
    assert train_views(data) == []
    found = audit(given, shares, views=[])
    assert not found.issue.any()
    assert "so all may be right" in found.summary()


def test_what_is_not_called_wrong_is_there_to_check(tmp_path: Path) -> None:
    wrong = set(range(0, 400, 14))
    columns = {"size": lambda row: f"{number(row) + 6 * (row % 2):.2f}"}  # one column cannot be halved
    write(tmp_path / "x.csv", columns, 400, label=lambda row: "ab"[(row % 2) ^ (row in wrong)])
    said = list[str]()
    proposal = clean(tmp_path / "x.csv", tmp_path / "fixed.csv", tmp_path / "review", echo=said.append)
    assert proposal.called == []
    assert len(wrong & {one.row for one in proposal.rows}) > 0.9 * len(wrong)
    assert len(proposal.rows) < 1.5 * len(wrong)
    assert all(one.suggested == {"a": "b", "b": "a"}[one.given] for one in proposal.rows)
    assert "No label is called wrong" in "\n".join(said)
    assert "Check by hand" in "\n".join(said)
    assert (tmp_path / "fixed.csv").read_bytes() == (tmp_path / "x.csv").read_bytes()
    page = (tmp_path / "review" / "review.html").read_text()
    assert "Check by hand" in page
    assert "are wrong" not in page.replace("of all labels are wrong", "")


def test_a_long_list_to_check_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcurriculum.clean.command.CHECKED", 5)
    labels = np.arange(200) % 2
    shares = np.where(np.arange(200)[:, None] % 10 < 2, [[0.3, 0.7]], np.eye(2)[labels] * 0.8 + 0.1).astype(np.float32)
    layout = {"label": "label", "encoding": "utf-8", "separator": ","}
    path = write(tmp_path / "x.csv", {"a": str, "b": str}, 200)
    columns = [Column(name, "number", "") for name in ("label", "a", "b")]
    data = dataclasses.replace(made(labels, np.ones((200, 2))), path=path, columns=columns, layout=layout)
    found = audit(labels, shares, views=[])
    assert not found.health
    proposal = propose(data, found, Folds(shares, ""), np.zeros(200, bool))
    assert len(proposal.rows) == 5
    assert any("the 5 most suspicious are listed" in note for note in proposal.notes)


def test_a_small_class_that_cannot_be_learnt_is_not_judged() -> None:
    labels = np.array([0] * 60 + [1] * 60 + [2] * 6)
    data = made(labels, np.ones((126, 2)))
    data = dataclasses.replace(data, classes=["a", "b", "rare"])
    shares = np.full((126, 3), 0.1, np.float32)
    shares[np.arange(126), np.where(labels == 2, 0, labels)] = 0.8
    small, by = without_unlearnt(data, Folds(shares, ""))
    assert small.classes == ["a", "b"]
    assert small.ids == data.ids[:120]
    assert small.skipped[0] == ("line 120", "its class is too small to learn")
    assert by.probabilities.shape == (120, 2)
    assert by.probabilities.sum(1) == pytest.approx(np.ones(120))
    assert small.notes[-1] == "Not examined, since these classes are too small to learn: 'rare' 6."


def test_a_small_class_that_is_not_judged_is_named(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.csv",
        {"x": lambda row: f"{number(row) + 9 * (row % 2):.3f}"},
        label=lambda row: "rare" if row % 20 == 7 else "ab"[row % 2],
    )
    lines: list[str] = []
    proposal = clean(path, review=tmp_path / "review", epochs=1, echo=lines.append)
    note = "Not examined, since these classes are too small to learn: 'rare' 6."
    assert note in lines
    assert note in proposal.notes


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A semicolon-separated Latin-1 file with 30 wrong labels of 400, cleaned by the command."""
    folder = tmp_path_factory.mktemp("clean")
    columns = {
        "Kunde": lambda row: f"K{row:04}",
        "Größe": lambda row: f"{number(row) + 6 * (row % 2):.2f}".replace(".", ","),
        "Umsatz": lambda row: f"{1000 + 300 * number(row + 1000) + 2500 * (row % 2):,.1f}".translate(
            str.maketrans(",.", ".,")
        ),
        "Ort": lambda row: ("Köln", "Bonn", "Ulm")[row % 3],
    }
    wrong = set(range(0, 400, 14))
    write(folder / "k.csv", columns, 400, ";", "cp1252", lambda row: ("schön", "übel")[(row % 2) ^ (row in wrong)])
    place = str(folder / "k")
    assert main(["clean", f"{place}.csv", "--out", f"{place}-fixed.csv", "--review", f"{place}-review"]) == 0
    return folder


def test_the_command_finds_wrong_labels_and_writes_the_file_without_them(cleaned: Path) -> None:
    before, after = ((cleaned / name).read_bytes().split(b"\r\n") for name in ("k.csv", "k-fixed.csv"))
    changed = [row for row, (one, two) in enumerate(zip(before, after, strict=True)) if one != two]
    wrong = set(range(0, 400, 14))
    assert {row - 1 for row in changed} <= wrong, "nothing that was right is changed"
    assert len(changed) > 0.5 * len(wrong)
    assert all(before[row].rsplit(b";", 1)[0] == after[row].rsplit(b";", 1)[0] for row in changed)
    proposal = json.loads((cleaned / "k-review" / "proposal.json").read_text())
    assert proposal["source"]["label"] == "label"
    assert proposal["source"]["id"] == "Kunde"
    assert not proposal["health"]
    assert proposal["share"]["low"] <= len(wrong) / 400 <= proposal["share"]["high"]
    first = proposal["rows"][0]
    assert first["id"] == f"K{first['row']:04}"
    assert next(iter(first["show"]["values"])) in ("Größe", "Umsatz"), "the telling columns come first"
    assert "more like" in first["why"]
    assert "<html" in (cleaned / "k-review" / "review.html").read_text()[:200].lower()
    with open(cleaned / "k-fixed.changes.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(changed)


def test_the_command_says_how_it_took_everything_and_shows_progress(
    cleaned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["clean", str(cleaned / "k.csv"), "--review", str(tmp_path / "r"), "--epochs", "2", "--drop", "Ort"]) == 0
    )
    said = capsys.readouterr().out
    assert "400 rows, 2 classes in the column 'label' (--label)" in said
    assert "read as cp1252, separated by semicolons" in said
    assert "Ort     left out  named by --drop" in said
    assert "training: 1 of" in said
    assert f"curriculum fix {tmp_path / 'r'} --out FIXED" in said


def test_labels_by_chance_are_not_a_finding(tmp_path: Path) -> None:
    draw = random.Random(0)
    path = write(
        tmp_path / "x.csv", {"a": lambda row: str(number(row))}, 300, label=lambda row: draw.choice(["left", "right"])
    )
    lines: list[str] = []
    proposal = clean(path, out=tmp_path / "y.csv", review=tmp_path / "r", echo=lines.append)
    assert proposal.health
    assert not proposal.rows
    assert any(line.startswith("No label is called wrong.") for line in lines)
    assert (tmp_path / "y.csv").read_bytes() == path.read_bytes()


def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x.csv", {"a": lambda row: str(number(row))})
    monkeypatch.setattr("os.access", lambda place, mode: False)
    lines: list[str] = []
    for options, flag in (({"review": tmp_path / "r"}, "--review"), ({"out": tmp_path / "new" / "y.csv"}, "--out")):
        with pytest.raises(ValueError, match=f"may not be written to; choose another place with {flag}"):
            clean(path, echo=lines.append, **options)
    assert not lines


def test_the_folder_in_which_one_is_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"^{tmp_path.name}-review is inside the data"):
        clean(".")


@pytest.mark.parametrize("kind", ["table", "folder"])
def test_data_that_changes_during_the_work_gives_no_proposal(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "x.csv", {"a": lambda row: f"{number(row) + 6 * (row % 2):.2f}"})
    if kind == "folder":
        for row in range(ROWS):
            data = tmp_path / "mails"
            (data / "ab"[row % 2]).mkdir(parents=True, exist_ok=True)
            (data / "ab"[row % 2] / f"{row}.txt").write_text(f"word{row % 2} number {row}")

    def trained(*arguments: Any, **options: Any) -> Folds:
        file = sorted(data.rglob("*.txt"))[0] if data.is_dir() else data
        file.write_bytes(file.read_bytes() + b"\r\n")
        return train_folds(*arguments, **options)

    monkeypatch.setattr("torchcurriculum.clean.command.train_folds", trained)
    with pytest.raises(ValueError, match=f"{data.name} has changed while it was examined; nothing was written"):
        clean(data, tmp_path / "fixed.csv", tmp_path / "r", epochs=1, echo=lambda line: None)
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / "fixed.csv").exists()


def test_decisions_stay_with_the_data_that_they_are_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = set(range(0, ROWS, 14))
    for name in "AB":
        (tmp_path / name).mkdir()
        columns = {"x": lambda row, name=name: f"{number(row + ord(name)) + 6 * (row % 2):.2f}"}
        write(tmp_path / name / "train.csv", columns, label=lambda row: "ab"[(row % 2) ^ (row in wrong)])
    first = clean("A/train.csv", echo=lambda line: None)
    one = first.rows[0]
    decided = Decisions.of(first, [Decision(one.row, one.given, "accept", one.suggested)])
    decided.write("train-review/decisions.json")
    assert clean("A/train.csv", echo=lambda line: None).key == first.key, "the same work, so the review goes on"
    before = (tmp_path / "train-review" / "proposal.json").read_bytes()
    assert main(["clean", "B/train.csv"]) == 2
    said = capsys.readouterr()
    assert not said.out, "refused before the work"
    assert "decisions.json is about other data (" in said.err
    assert "choose another folder with --review" in said.err
    assert (tmp_path / "train-review" / "proposal.json").read_bytes() == before
    lines: list[str] = []
    clean("A/train.csv", seed=1, echo=lines.append)
    assert any("decisions.json is about an earlier proposal" in line for line in lines)
    assert main(["fix", "train-review", "--out", "fixed.csv"]) == 2
    assert "decisions.json is about another proposal" in capsys.readouterr().err
    assert main(["fix", "train-review/decisions.json", "--out", "fixed.csv"]) == 0


def test_data_that_is_a_link_into_a_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    columns = {"x": lambda row: f"{number(row) + 6 * (row % 2):.2f}"}
    (tmp_path / "x.csv").symlink_to(write(tmp_path / "store" / "9f86d0", columns))
    proposal = clean(tmp_path / "x.csv", tmp_path / "a.csv", tmp_path / "r", epochs=1, echo=lambda line: None)
    assert proposal.source.path == str(tmp_path / "x.csv")
    assert main(["fix", str(tmp_path / "r"), "--out", str(tmp_path / "b.csv")]) == 0
    assert (tmp_path / "b.csv").read_bytes() == (tmp_path / "x.csv").read_bytes()


def test_mistakes_in_the_command_get_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "x.csv", {"a": lambda row: str(number(row))})
    (tmp_path / "empty").mkdir()
    for words, message in (
        (["nowhere.csv"], "nowhere.csv does not exist"),
        ([str(tmp_path / "empty")], "holds no pictures"),
        ([str(path), "--folds", "1"], "--folds must be at least 2, got 1"),
        ([str(path), "--epochs", "0"], "--epochs must be at least 1, got 0"),
        ([str(path), "--out", str(path)], "is the data itself; choose another name"),
        ([str(path), "--features", "minilm"], "no column of this table holds text"),
        ([str(tmp_path), "--review", str(tmp_path / "r")], "is inside the data"),
        ([str(path), "--review", str(path / "r")], f"{path} is a file, so no folder can be made there; choose another"),
        ([str(path), "--review", str(path)], "choose another place with --review"),
        ([str(path), "--out", str(path / "r.csv")], "choose another place with --out"),
    ):
        assert main(["clean", *words]) == 2
        assert message in capsys.readouterr().err
