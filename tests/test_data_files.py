"""Readers of official and of users' own files: what they give, and what they say of missing or damaged ones."""

from __future__ import annotations

import hashlib
import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcurriculum.clean.tables import read_table
from torchcurriculum.lab.data import (
    ImageFiles,
    Tokens,
    cifar,
    load_cifar100,
    load_glue,
    load_image_folder,
    load_tudataset,
    load_webvision,
    split,
)

from . import official
from .test_fuzz import judged, tries


def test_splits_are_nine_to_one_and_eight_to_one_to_one() -> None:
    nine, eight = split(50_000, seed=3), split(4110, seed=3, valid=0.1, test=0.1)
    assert [len(nine[part]) for part in ("train", "valid", "test")] == [45_000, 5_000, 0]
    assert [len(eight[part]) for part in ("train", "valid", "test")] == [3288, 411, 411]
    assert torch.equal(torch.cat(list(eight.values())).sort().values, torch.arange(4110))
    assert not torch.equal(eight["test"], split(4110, seed=4, valid=0.1, test=0.1)["test"])
    with pytest.raises(ValueError, match="leave rows to train on"):
        split(10, 0, valid=0.5, test=0.5)


# ---------------------------------------------------------------------- CIFAR-100


def test_cifar100_takes_the_fine_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = load_cifar100(official.cifar100(tmp_path, monkeypatch), seed=1)
    assert {part: tuple(x.shape) for part, (x, _) in parts.items()} == {
        "train": (180, 3, 32, 32),
        "valid": (20, 3, 32, 32),
        "test": (100, 3, 32, 32),
    }
    assert torch.equal(parts["test"][1], torch.arange(100))
    content = np.frombuffer((tmp_path / "cifar-100-binary" / "test.bin").read_bytes(), np.uint8).reshape(-1, 3074)
    assert parts["test"][0][7, 2, 5, 9] == content[7, 2 + 2 * 1024 + 5 * 32 + 9]


def test_cifar100_is_read_from_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = official.cifar100(tmp_path / "made", monkeypatch)
    archive = tmp_path / "cifar-100-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(made / "cifar-100-binary", "cifar-100-binary")
    with pytest.raises(ValueError, match=r"tar.gz is damaged: its md5 sum is not the published one"):
        load_cifar100(tmp_path)
    monkeypatch.setattr(cifar, "MD5_100", hashlib.md5(archive.read_bytes()).hexdigest())
    assert torch.equal(load_cifar100(tmp_path)["train"][0], load_cifar100(made)["train"][0])


def test_damaged_or_missing_cifar100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"train.bin is missing; get https://www.cs.toronto.edu"):
        load_cifar100(tmp_path)
    path = official.cifar100(tmp_path, monkeypatch) / "cifar-100-binary" / "test.bin"
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"test.bin has 307399 bytes, not 307400"):
        load_cifar100(tmp_path)
    content[1] = 5  # a second image of class 5 and none of class 0
    path.write_bytes(content)
    with pytest.raises(ValueError, match="does not hold 1 images of each of 100 classes"):
        load_cifar100(tmp_path)


# ---------------------------------------------------------------------- RTE


def test_rte_from_every_place(tmp_path: Path) -> None:
    official.rte(tmp_path / "glue" / "RTE")
    for place in (tmp_path, tmp_path / "glue", tmp_path / "glue" / "RTE"):
        first, second, y = load_glue(place)["train"]
        assert first[1] == 'the "cat" sat on a mat .'
        assert second[1] == "a cat sat"
        assert y.tolist() == [1, 0] * 6
    assert len(load_glue(tmp_path)["valid"][2]) == 6


def test_rte_through_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    parts = load_glue(official.rte(tmp_path / "tsv"))
    columns = ("sentence1", "sentence2", "label")

    def table(part: Any) -> Any:
        return datasets.Dataset.from_dict(dict(zip(columns, (part[0], part[1], part[2].tolist()), strict=True)))

    held = datasets.DatasetDict({"train": table(parts["train"]), "validation": table(parts["valid"])})
    assert load_glue(held)["train"][:2] == parts["train"][:2]
    held.save_to_disk(str(tmp_path / "saved"))
    assert torch.equal(load_glue(tmp_path / "saved")["valid"][2], parts["valid"][2])
    with pytest.raises(ValueError, match="needs a split named 'validation'"):
        load_glue({"train": held["train"]})
    with pytest.raises(ValueError, match="has no column sentence2"):
        load_glue({"train": held["train"].remove_columns("sentence2"), "validation": held["validation"]})
    with pytest.raises(ValueError, match="must have labels 0"):
        unlabelled = held["train"].remove_columns("label").add_column("label", [-1] * 12)
        load_glue({"train": unlabelled, "validation": held["validation"]})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"index\tsentence1\tlabel\n", "must name the columns sentence1, sentence2, label"),
        (b"index\tsentence1\tsentence2\tlabel\n", "has no rows"),
        (b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\n", "line 2 has 3 columns, not 4"),
        (b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tmaybe\n", "line 2 has the label 'maybe'"),
        (b"index\tsentence1\tsentence2\tlabel\n0\t\xff\tb\tentailment\n", "not UTF-8 text"),
    ],
)
def test_damaged_rte(tmp_path: Path, content: bytes, reason: str) -> None:
    official.rte(tmp_path)
    (tmp_path / "train.tsv").write_bytes(content)
    with pytest.raises(ValueError, match=reason) as caught:
        load_glue(tmp_path)
    assert str(caught.value).startswith(str(tmp_path / "train.tsv"))


def test_missing_rte_has_its_address(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train.tsv is missing; get it from https://"):
        load_glue(tmp_path)


def test_tokens_are_cut_to_the_longest_of_a_batch_and_move_together() -> None:
    ids = torch.tensor([[5, 6, 0, 0], [5, 6, 7, 8], [5, 0, 0, 0]])
    data = Tokens({"input_ids": ids, "attention_mask": (ids > 0).long()}, torch.tensor([0, 1, 0]))
    x, y = data.batch(torch.tensor([2, 0]))
    assert x["input_ids"].tolist() == [[5, 0], [5, 6]]
    assert y.tolist() == [0, 0]
    assert data.with_labels(torch.tensor([1, 1, 1])).batch(torch.tensor([2]))[1].tolist() == [1]
    assert data.to("cpu").batch(torch.tensor([1]))[0]["attention_mask"].tolist() == [[1, 1, 1, 1]]
    with pytest.raises(ValueError, match="as many rows as there are targets"):
        Tokens({"input_ids": ids, "attention_mask": ids}, torch.tensor([0]))


# ---------------------------------------------------------------------- WebVision


def test_webvision_and_its_mini_version(tmp_path: Path) -> None:
    official.webvision(tmp_path / "webvision")
    whole, mini = load_webvision(tmp_path), load_webvision(tmp_path, mini=True)
    assert whole["train"][1].tolist() == [0] * 4 + [49] * 4 + [50, 0, 999]
    assert whole["valid"][1].tolist() == [0, 49, 999]
    assert mini["train"][1].tolist() == [0] * 4 + [49] * 4
    assert mini["valid"][1].tolist() == [0, 49]
    assert all(path.exists() for part in whole.values() for path in part[0])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("google/q0001/0.jpg\n", "line 1 is 'google/q0001/0.jpg', not a file name and a class"),
        ("google/q0001/0.jpg 0\ngoogle/q0001/1.jpg 1000\n", "line 2 is"),
        ("google/../../etc/passwd 0\n", "outside its folder"),
        ("/etc/passwd 0\n", "outside its folder"),
        ("google/\0.jpg 0\n", "outside its folder"),
        ("google/q0051/0.jpg 50\n", "no image of the first 50 classes"),
    ],
)
def test_damaged_webvision_lists(tmp_path: Path, text: str, reason: str) -> None:
    path = official.webvision(tmp_path) / "info" / "train_filelist_google.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason) as caught:
        load_webvision(tmp_path, mini=True)
    assert str(caught.value).startswith(str(path))


def test_missing_webvision_files_have_their_address(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train_filelist_google.txt is missing; get it from https://"):
        load_webvision(tmp_path)
    official.webvision(tmp_path)
    (tmp_path / "google" / "q0001" / "0.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"0.jpg, the first image of .*, is missing; get the images"):
        load_webvision(tmp_path)


# ---------------------------------------------------------------------- images of the user's own


def test_images_are_the_same_however_many_threads_read_them(tmp_path: Path) -> None:
    official.image_folder(tmp_path)
    parts, classes = load_image_folder(tmp_path, seed=0)
    assert classes == ["cats", "dogs"]
    assert [len(parts[part][0]) for part in ("train", "valid", "test")] == [16, 2, 2]
    paths, y = parts["train"]
    one, four = (ImageFiles(paths, y, size=8, threads=threads) for threads in (1, 4))
    rows = torch.arange(16)

    def seeded() -> torch.Generator:
        return torch.Generator().manual_seed(5)

    assert torch.equal(one.batch(rows, seeded())[0], four.batch(rows, seeded())[0])
    assert torch.equal(one.batch(rows)[0], four.batch(rows)[0])
    assert not torch.equal(one.batch(rows)[0], one.batch(rows, seeded())[0])
    x, label = one[3]
    assert x.shape == (3, 8, 8)
    assert label == y[3]
    flipped = [one.batch(torch.tensor([0]), torch.Generator().manual_seed(seed))[0][0, 0] for seed in range(12)]
    brighter_right = [bool(image[:, 0].mean() < image[:, -1].mean()) for image in flipped]
    assert {True, False} == set(brighter_right)  # the left half of every picture is the darker one


def test_pixels_are_those_of_the_file(tmp_path: Path) -> None:
    official.picture(tmp_path / "a" / "x.png", 200, size=(16, 16))
    data = ImageFiles([tmp_path / "a" / "x.png"], torch.tensor([0]), size=14)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])  # of ImageNet
    x = 255 * (data.batch(torch.tensor([0]))[0] * std.view(1, 3, 1, 1) + mean.view(1, 3, 1, 1))
    assert x[0, :, :, 0].sub(100).abs().max() < 1e-3
    assert x[0, :, :, -1].sub(200).abs().max() < 1e-3


def test_a_folder_with_parts_of_its_own(tmp_path: Path) -> None:
    official.image_folder(tmp_path / "train")
    parts, _ = load_image_folder(tmp_path)
    assert [len(parts[part][0]) for part in ("train", "valid", "test")] == [18, 2, 2]
    official.image_folder(tmp_path / "val", of_each=3)
    official.image_folder(tmp_path / "test", of_each=2)
    parts, _ = load_image_folder(tmp_path)
    assert [len(parts[part][0]) for part in ("train", "valid", "test")] == [20, 6, 4]
    official.picture(tmp_path / "test" / "unknown.png", 5)
    with pytest.warns(UserWarning, match=r"1 pictures in .* are left out: test/unknown.png: it is in no class folder"):
        assert len(load_image_folder(tmp_path)[0]["test"][0]) == 4
    (tmp_path / "test" / "unknown.png").unlink()
    official.picture(tmp_path / "test" / "birds" / "x.png", 5)
    with pytest.raises(ValueError, match="has the class 'birds', which the training split lacks"):
        load_image_folder(tmp_path)


def test_folders_that_hold_something_else(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_image_folder(tmp_path / "nowhere")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=r"holds files \(.jpg, .* of 0 classes; two or more class folders are needed"):
        load_image_folder(tmp_path)


def test_damaged_images_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(b"\xff\xd8\xff\xe0 not a picture")
    with pytest.raises(ValueError, match=r"x.jpg cannot be read as an image"):
        ImageFiles([path], torch.tensor([0])).batch(torch.tensor([0]))
    with pytest.raises(FileNotFoundError, match=r"the image .*nowhere.jpg is missing"):
        ImageFiles([tmp_path / "nowhere.jpg"], torch.tensor([0])).batch(torch.tensor([0]))


# ---------------------------------------------------------------------- CSV


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("a\n1\n", "has one column"),
        ("a,label\n", "has no rows"),
        ("a,label\n1,x\n", "1 different values in 1 rows, so it does not hold classes"),
        ("a,label\n" + "1,x\n" * 9, "1 classes in 9 rows, and 1 of them with 5 rows or more"),
        ("a,label\n1\n2\n", r"most rows do not have as many cells .*line 2: it has 1 cells, not 2"),
        ("0.5,label\n1,x\n", "it holds the number 0.5"),
        ('a,label\n1,"x\n', "a quote that opens after line 1 is never closed"),
        ("a,label\n" + "7,x\n7,y\n" * 9, "has no usable column to learn from"),
        ("a,label\n\0\0\0\0\0,\0\n", "is not text: it holds NUL bytes"),
    ],
)
def test_damaged_csv(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


def test_missing_csv_and_column(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"x.csv does not exist"):
        read_table(tmp_path / "x.csv")
    with pytest.raises(ValueError, match="is a folder, and a table is one file; give a CSV, TSV or Parquet file"):
        read_table(tmp_path)
    with pytest.raises(ValueError, match="/dev/null is not a regular file, and a table is one file; give a CSV"):
        read_table("/dev/null")
    with pytest.raises(ValueError, match="has no column 'c'; it has a, b, label"):
        read_table(official.csv_file(tmp_path / "x.csv"), label="c")


# ---------------------------------------------------------------------- damage of every kind


def whole(folder: Path) -> dict[str, Path]:
    """For each reader, a folder of good files."""
    places = {name: folder / name for name in ("nci1", "rte", "webvision", "csv", "images")}
    official.nci1(places["nci1"], graphs=10)
    official.rte(places["rte"])
    official.webvision(places["webvision"])
    official.image_folder(places["images"], of_each=5)
    places["csv"].mkdir()
    official.csv_file(places["csv"] / "x.csv", rows=20)
    return places


def read(name: str, folder: Path) -> None:
    """Reads everything, and checks that what comes out is whole."""
    if name == "nci1":
        graphs = load_tudataset(folder)
        batch, y = graphs.batch(torch.arange(len(graphs)))
        assert len(y) == len(batch)
        assert not batch.edge_index.numel() or 0 <= batch.edge_index.min() <= batch.edge_index.max() < len(batch.x)
    elif name == "rte":
        for first, second, y in load_glue(folder).values():
            assert len(first) == len(second) == len(y)
            assert set(y.tolist()) <= {0, 1}
    elif name == "csv":
        assert np.isfinite(read_table(folder / "x.csv").features).all()
    elif name == "webvision":
        for paths, y in load_webvision(folder, mini=True).values():
            assert 0 <= y.min() <= y.max() < 50
            assert all(folder in path.resolve().parents for path in paths)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # says which pictures are left out
            paths, y = load_image_folder(folder)[0]["train"]
        assert ImageFiles(paths, y, size=4, threads=1).batch(torch.arange(len(y)))[0].isfinite().all()


@pytest.mark.parametrize("name", ["nci1", "rte", "webvision", "csv", "images"])
@given(data=st.data())
@tries(60)
def test_damage_gives_a_sentence_with_the_files_name(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = whole(tmp_path_factory.mktemp("damage"))[name]
    kinds = ("*.png",) if name == "images" else ("*.txt", "*.tsv", "*.csv")
    path = data.draw(st.sampled_from(sorted(path for kind in kinds for path in folder.rglob(kind))))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content)))
        odd = st.sampled_from(
            [b"\0", b"\xff", b"-1", b"9" * 25, b"\n", b"\t", b",", b" ", b'"', b"1e999", b"nan", b"../"]
        )
        content[place : place + data.draw(st.integers(0, 30))] = data.draw(st.one_of(odd, st.binary(max_size=8)))
    path.write_bytes(bytes(content))
    with judged(warned=0) as outcome:
        read(name, folder)
    if outcome.error is not None:
        assert outcome.clear(), repr(outcome.error)
        assert str(folder) in str(outcome.error)
