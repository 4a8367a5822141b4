"""Pictures and tables that look ordinary and are not: read right, or refused by name."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from torchcurriculum import Record
from torchcurriculum.clean.tables import read_table
from torchcurriculum.cli import main
from torchcurriculum.lab.data import ImageFiles, load_image_folder
from torchcurriculum.lab.recipes import RECIPES
from torchcurriculum.lab.sources import digest

Image = pytest.importorskip("PIL.Image")


# ---------------------------------------------------------------------- pictures


def pixels(path: Path) -> np.ndarray:
    return ImageFiles([path], torch.tensor([0]), size=16).pictures(torch.tensor([0]), size=16)[0].numpy()


def gradient(largest: float, kind: type) -> np.ndarray:
    return np.linspace(0, largest, 32 * 32).reshape(32, 32).astype(kind)


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bits_are_rescaled(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(gradient(255, np.uint8)).save(tmp_path / "eight.png")
    Image.fromarray(gradient(65535, np.uint16)).save(tmp_path / f"sixteen.{suffix}")
    eight, sixteen = pixels(tmp_path / "eight.png"), pixels(tmp_path / f"sixteen.{suffix}")
    assert np.abs(eight.astype(int) - sixteen).max() <= 2
    assert np.ptp(sixteen) > 150


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_pixels_of_unknown_range_are_refused_by_name(tmp_path: Path, kind: type) -> None:
    Image.fromarray(gradient(1 if kind is np.float32 else 100_000, kind)).save(tmp_path / "odd.tiff")
    with pytest.raises(ValueError, match=r"odd\.tiff cannot be read as an image: .*32-bit.*convert it to 8 or 16 bits"):
        pixels(tmp_path / "odd.tiff")


def test_threads_that_read_leave_warnings_as_they_were(tmp_path: Path) -> None:
    for number in range(64):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    data = ImageFiles(sorted(tmp_path.iterdir()), torch.zeros(64, dtype=torch.long), size=8, threads=8)
    with warnings.catch_warnings():
        for _ in range(20):
            before = list(warnings.filters)
            data.batch(torch.arange(64))
            assert warnings.filters == before


def test_a_palette_with_transparency_stands_on_white_and_is_read_without_a_warning(tmp_path: Path) -> None:
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 255, 0, 0])
    palette.save(tmp_path / "p.png", transparency=b"\x00\x80")
    assert pixels(tmp_path / "p.png")[0, 0].tolist() == [255, 127, 127]


def classes(folder: Path) -> Path:
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            Image.new("L", (4, 4), 100 * label + number).save(folder / name / f"{number}.bmp")
    return folder


def test_the_digest_of_pictures_is_of_their_content(tmp_path: Path) -> None:
    folder, recipe = classes(tmp_path / "data"), RECIPES["image-folder"]
    before = digest(recipe, folder)
    assert digest(recipe, folder) == before
    one, other = folder / "cat" / "0.bmp", folder / "dog" / "0.bmp"
    contents, times = [path.read_bytes() for path in (one, other)], [path.stat().st_mtime_ns for path in (one, other)]
    assert len(contents[0]) == len(contents[1])
    for path, content, time in zip((other, one), contents, times, strict=True):
        path.write_bytes(content)
        os.utime(path, ns=(time, time))
    assert digest(recipe, folder) != before


def test_a_pipe_among_the_pictures_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(classes(tmp_path) / "cat" / "pipe.png")
    parts, _ = load_image_folder(tmp_path)
    assert sum(len(y) for _, y in parts.values()) == 12


# ---------------------------------------------------------------------- tables


def table(path: Path, head: str, rows: int = 20) -> Path:
    path.write_text(f"{head}\n" + "".join(f"{n % 3},{n % 2},{'ab'[n % 2]}\n" for n in range(rows)))
    return path


@pytest.mark.parametrize("head", ["x,y,class", "label,target,z", "x,y,kind", "x, Y ,z"])
def test_an_ambiguous_label_column_is_refused(tmp_path: Path, head: str) -> None:
    with pytest.raises(ValueError, match="which column holds the classes") as caught:
        read_table(table(tmp_path / "t.csv", head))
    assert "--label" in str(caught.value)
    assert read_table(tmp_path / "t.csv", label=head.split(",")[2]).classes == ["a", "b"]


@pytest.mark.parametrize(
    ("head", "taken"), [("x,z,class", "class"), ("a,b,y", "y"), ("x,a,y", "y"), ("a,b,kind", "kind")]
)
def test_the_label_column_is_always_said(
    tmp_path: Path, head: str, taken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "t.csv", head)
    command = ["run", "csv", "--data", str(path), "--method", "vanilla", "--seeds", "0", "--epochs", "1", "--out"]
    assert main([*command, str(tmp_path / "out")]) == 0
    assert f"2 classes in the column {taken!r}" in capsys.readouterr().out


def test_the_label_column_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "t.csv", "x,y,class").rename(tmp_path / "u.csv")
    command = ["run", "csv", "--data", str(path), "--method", "vanilla", "--seeds", "0", "--epochs", "1", "--out"]
    assert main([*command, str(tmp_path / "out")]) == 2
    assert "--label" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "out"), "--label", "class"]) == 0
    assert "2 classes in the column 'class'" in capsys.readouterr().out
    assert main([*command, str(tmp_path / "out"), "--label", "nothing"]) == 2
    assert main(["run", "digits", "--label", "class", "--out", str(tmp_path / "d")]) == 2
    assert "--label is for the recipe 'csv'" in capsys.readouterr().err
    assert main(["run", "digits", "--drop", "x", "--out", str(tmp_path / "d")]) == 2
    assert "--drop is for the recipe 'csv'" in capsys.readouterr().err


def test_a_run_reads_a_table_as_clean_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"k{n};{n % 3};{n % 5};ä{n % 2}\n" for n in range(60))
    (tmp_path / "t.csv").write_bytes(f"who;x;z;kind\n{rows}".encode("cp1252"))
    command = ["run", "csv", "--data", str(tmp_path / "t.csv"), "--method", "vanilla", "--seeds", "0", "--epochs", "1"]
    command += ["--out", str(tmp_path / "out"), "--label", "kind", "--id", "who", "--drop", "z"]
    command += ["--sep", ";", "--encoding", "cp1252"]
    for _ in range(2):  # the second time the run is found
        assert main(command) == 0
        said = capsys.readouterr().out
        assert "left out" in said
        assert "--drop" in said
    assert Record.load(tmp_path / "out" / "vanilla" / "seed-0").arrays["names"][0].startswith(b"k")
    assert main([*command, "--drop", "x"]) == 2, "other columns are another run"


def test_timestamps_keep_their_differences(tmp_path: Path) -> None:
    rows = "".join(f"{1_700_000_000 + n * n},0.1,{'ab'[n % 2]}\n" for n in range(20))
    (tmp_path / "t.csv").write_text(f"time,constant,label\n{rows}")
    source = read_table(tmp_path / "t.csv")
    assert source.features.shape == (20, 1), "a constant column is left out"
    assert len(np.unique(source.features)) == 20
