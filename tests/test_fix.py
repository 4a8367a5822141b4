"""Corrected data: every byte outside of the label cells stays, whatever the file looks like; folders; refusals."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcurriculum.clean import Proposal, Share, Source, Suspect, digest
from torchcurriculum.clean.decisions import Decision, Decisions
from torchcurriculum.clean.delimited import Delimited
from torchcurriculum.clean.fix import Fix, planned
from torchcurriculum.clean.folders import class_files
from torchcurriculum.clean.tables import read_table
from torchcurriculum.cli import main

# ---------------------------------------------------------------------- bytes


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@st.composite
def files(draw: st.DrawFn) -> tuple[list[str], dict[int, str | None], str, list[int], list[str]]:
    """A file as the pieces it is made of: the oracle knows where each cell stands because it put it there."""
    separator = draw(st.sampled_from(",;\t|"))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    plain = st.text(st.characters(codec="latin-1", exclude_characters='"\r\n \t' + separator), min_size=1, max_size=5)
    wild = st.text(st.sampled_from('a"\n\r,;|\té x='), max_size=6).map(quoted)
    blank = st.sampled_from(["", " ", "  "])
    cell = st.one_of(plain, wild, st.just(""), plain.map(lambda text: text + '"q"'))
    columns = draw(st.integers(1, 3))
    place = draw(st.integers(0, columns))
    header = [f"c{number}" for number in range(columns)]
    header.insert(place, draw(st.sampled_from(["label", '"label"'])))
    pieces, spots, labels = [separator.join(header), end], [], []
    for _ in range(draw(st.integers(1, 5))):
        cells = [draw(cell) for _ in range(columns)]
        label = draw(plain)
        around = draw(st.sampled_from(["plain", "quoted", "spaced"]))
        cells.insert(place, "")
        pieces.append(separator.join(cells[:place]) + (separator if place else ""))
        pieces.append(draw(blank) if around == "spaced" and separator != " " else "")
        spots.append(len(pieces))
        labels.append(label)
        pieces.append(quoted(label) if around == "quoted" else label)
        pieces.append((separator if place < columns else "") + separator.join(cells[place + 1 :]))
        pieces.append(end)
        if draw(st.booleans()):
            pieces.append(end)  # an empty line
    if draw(st.booleans()):
        pieces.pop()
    rows = draw(st.lists(st.integers(0, len(spots) - 1), unique=True))
    new = {row: draw(st.one_of(st.none(), plain, st.text(st.sampled_from('a",;|'), min_size=1))) for row in rows}
    return pieces, new, separator, spots, labels


@settings(max_examples=200, deadline=None)
@given(files(), st.sampled_from(["utf-8", "latin-1", "utf-8-sig", "utf-16"]))
def test_only_the_bytes_of_label_cells_change(held: tuple, encoding: str) -> None:
    pieces, new, separator, spots, labels = held
    file = Delimited("".join(pieces).encode(encoding), encoding, separator)
    assert list(file.labels("label").values()) == [label.strip() for label in labels]
    expected = list(pieces)
    for row, label in new.items():
        spot = spots[row]
        if label is None:  # the record goes with its line end, and not the empty line after it
            for place in range(spot - 2, min(spot + 3, len(pieces))):
                expected[place] = ""
            continue
        needs = expected[spot].startswith('"') or any(letter in label for letter in '"' + separator)
        expected[spot] = quoted(label) if needs else label
        if needs:
            expected[spot - 1] = ""  # a quote opens a cell only at its beginning
    assert file.relabelled("label", new) == "".join(expected).encode(encoding)
    again = Delimited(file.relabelled("label", new), encoding, separator).labels("label").values()
    left = [new.get(row, label) for row, label in enumerate(labels)]
    assert list(again) == [label.strip() for label in left if label is not None]


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from('ab",\n\r '), max_size=40))
def test_records_are_those_of_the_csv_module(text: str) -> None:
    text = f"h,label\n{text}\n"
    expected = [cells for cells in csv.reader([*text.splitlines(keepends=True), "\0"]) if cells]
    if expected.pop() != ["\0"]:  # a quote that is never closed: `curriculum clean` refuses the file
        return
    file = Delimited(text.encode(), "utf-8", ",")
    found = [file.header, *(file.values(record) for record in file.records())]
    assert found == [[cell.strip() for cell in cells] for cells in expected]


def test_quotes_that_are_letters(tmp_path: Path) -> None:
    raw = b'label\ttext\nx\t"never closed\ny\tplain\n'
    assert Delimited(raw, "utf-8", "\t", quotes=False).relabelled("label", {1: "x"}).endswith(b"\nx\tplain\n")
    with pytest.raises(ValueError, match="cannot be written to a file without quotes"):
        Delimited(raw, "utf-8", "\t", quotes=False).relabelled("label", {1: "a\tb"})


def test_weights_are_a_last_column() -> None:
    raw = codecs.BOM_UTF8 + b'label,text\r\nx,"a\r\nb"\r\n\r\ny,c'
    expected = codecs.BOM_UTF8 + b'label,text,w\r\nx,"a\r\nb",0.25\r\n\r\ny,c,1'
    assert Delimited(raw, "utf-8-sig", ",").weighted("w", {0: "0.25"}) == expected
    with pytest.raises(ValueError, match="already has a column 'text'"):
        Delimited(raw, "utf-8", ",").weighted("text", {})
    assert Delimited(b"a,b\n1\n2,3\n", "utf-8", ",").weighted("w", {1: "0"}) == b"a,b,w\n1\n2,3,0\n"


def test_labels_that_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="a label contains 'ž', which latin-1 cannot encode"):
        Delimited(b"label,x\na,\xe9\n", "latin-1", ",").relabelled("label", {0: "ž"})
    with pytest.raises(ValueError, match="2 columns are named 'label'"):
        Delimited(b"label,label\na,b\n", "utf-8", ",").relabelled("label", {})
    short = Delimited(b"a,label\n1\n2,x\n", "utf-8", ",")
    assert short.labels("label") == {0: "", 1: "x"}
    with pytest.raises(ValueError, match="is too short to have a label"):
        short.relabelled("label", {0: "y"})
    with pytest.raises(ValueError, match="the file holds no header"):
        Delimited(b"\n\n", "utf-8", ",")
    with pytest.raises(ValueError, match="cannot be read as utf-16"):
        Delimited(b"abc", "utf-16-le", ",")


# ---------------------------------------------------------------------- tables


def table(folder: Path, raw: bytes = b"id,label,x\n1,cat,5\n2,dog,6\n3,-1,7\n4,cat,8\n", **layout: object) -> Source:
    path = folder / "pets.csv"
    path.write_bytes(raw)
    return Source(
        str(path),
        "table",
        digest(path),
        label="label",
        **{"encoding": "utf-8", "separator": ",", **layout},  # type: ignore[arg-type]
    )


def proposal(source: Source) -> Proposal:
    rows = [
        Suspect(0, "cat", "dog", 0.02, "1", 0.97, sure=True),
        Suspect(2, "-1", "cat", 0.3, "3", 0.6),
        Suspect(3, "cat", None, 0.4, "4"),
        Suspect(1, "dog", "cat", 0.1, "2", 0.9, called=False),
    ]
    return Proposal(source, ["cat", "dog", "-1"], 4, rows)


def test_a_proposal_changes_what_it_is_sure_of(tmp_path: Path) -> None:
    source = table(tmp_path)
    out, log = Fix(source, planned(proposal(source))).write(tmp_path / "new" / "fixed.csv")
    assert out.read_bytes() == b"id,label,x\n1,dog,5\n2,dog,6\n3,-1,7\n4,cat,8\n"
    assert log == tmp_path / "new" / "fixed.changes.csv"
    assert log.read_text() == "row,id,given,change,label,weight,by\n0,1,cat,relabel,dog,,proposal\n"
    assert digest(source.path) == source.digest


@pytest.mark.parametrize(
    ("mode", "probability", "expected"),
    [
        ("relabel", 0.5, b"id,label,x\n1,dog,5\n2,cat,6\n3,cat,7\n4,cat,8\n"),
        ("relabel", 0.99, b"id,label,x\n1,cat,5\n2,dog,6\n3,-1,7\n4,cat,8\n"),
        ("drop", None, b"id,label,x\n2,dog,6\n3,-1,7\n4,cat,8\n"),
        ("drop", 0.5, b"id,label,x\n4,cat,8\n"),
        ("weight", None, b"id,label,x,label_weight\n1,cat,5,0.02\n2,dog,6,1\n3,-1,7,0.3\n4,cat,8,0.4\n"),
    ],
)
def test_modes(tmp_path: Path, mode: str, probability: float | None, expected: bytes) -> None:
    source = table(tmp_path)
    changes = planned(proposal(source), None, mode, probability)
    out, _ = Fix(source, changes, mode).write(tmp_path / "fixed.csv")
    assert out.read_bytes() == expected


def test_where_all_labels_may_be_right_a_probability_changes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = table(tmp_path)
    rows = [Suspect(0, "cat", "dog", 0.02, "1", 0.97, called=False)]
    for low, changed in ((0.0, 0), (0.01, 1)):
        found = Proposal(source, ["cat", "dog", "-1"], 4, rows, Share(0.1, low, 0.2))
        assert len(planned(found, min_probability=0.9)) == changed
        found.write(tmp_path / "r" / "proposal.json")
        assert run("fix", tmp_path / "r", "--min-probability", "0.9", "--out", "f.csv", "--dry-run") == 0
        said = "All labels may be right, so --min-probability changes only" in capsys.readouterr().out
        assert said != changed


DECIDED = [
    Decision(0, "cat", "keep", id="1"),
    Decision(2, "-1", "other", "=new", "3"),
    Decision(3, "cat", "drop", id="4"),
]


@pytest.mark.parametrize("name", ["decisions.json", "decisions.csv"])
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("relabel", b"id,label,x\n1,cat,5\n2,dog,6\n3,=new,7\n"),
        ("drop", b"id,label,x\n1,cat,5\n2,dog,6\n"),
        ("weight", b"id,label,x,label_weight\n1,cat,5,1\n2,dog,6,1\n3,-1,7,0\n4,cat,8,0\n"),
    ],
)
def test_decisions_from_either_file(tmp_path: Path, name: str, mode: str, expected: bytes) -> None:
    source = table(tmp_path)
    written = Decisions.of(proposal(source), DECIDED).write(tmp_path / name)
    decisions = Decisions.read(written)
    assert decisions.rows == DECIDED
    assert decisions.source == (source if name.endswith("json") else None)
    changes = planned(proposal(source), decisions, mode)
    out, log = Fix(source, changes, mode).write(tmp_path / "fixed.csv")
    assert out.read_bytes() == expected
    assert ("'=new" in log.read_text()) == (mode == "relabel")
    with pytest.raises(ValueError, match="--min-probability selects suggestions"):
        planned(proposal(source), decisions, mode, 0.5)


@pytest.mark.parametrize(
    ("encoding", "change"),
    [
        ("cp1252", lambda text: text.replace(",", ";")),
        ("utf-16", lambda text: text.replace(",", "\t")),
        ("utf-8-sig", lambda text: text.replace("\n", "\r\n") + ",,,,\r\n"),
        ("utf-8", lambda text: text.replace("other,Äsche", "Other ,Äsche ")),
    ],
)
def test_decisions_as_a_spreadsheet_saves_them(tmp_path: Path, encoding: str, change: Callable[[str], str]) -> None:
    decided = [Decision(2, "-1", "other", "Äsche", "3"), Decision(0, "cat", "keep")]
    text = change(Decisions(decided).as_csv())
    (tmp_path / "d.csv").write_bytes(text.encode(encoding))
    assert Decisions.read(tmp_path / "d.csv").rows == decided


def test_a_row_that_is_not_a_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("row,given,decision\n2,cat,keep\n3.0,cat,keep\n")
    with pytest.raises(ValueError, match="line 3: the column 'row' must hold a whole number, got '3.0'"):
        Decisions.read(tmp_path / "d.csv")


def test_a_label_of_a_person_is_not_the_proposals(tmp_path: Path) -> None:
    source = table(tmp_path)
    with pytest.raises(ValueError, match="the proposal has no row 1 with the label 'bird'"):
        Decisions.of(proposal(source), [Decision(1, "bird", "keep")])


def test_what_is_refused(tmp_path: Path) -> None:
    source = table(tmp_path)
    fix = Fix(source, planned(proposal(source)))
    data = Path(source.path)
    with pytest.raises(ValueError, match=r"either --out FIXED or --in-place"):
        fix.write()
    with pytest.raises(ValueError, match=r"pets.csv is the data itself; choose another name"):
        fix.write(tmp_path / "." / "pets.csv")
    with pytest.raises(ValueError, match=r"its name must end in .csv"):
        fix.write(tmp_path / "fixed.parquet")
    (tmp_path / "there.csv").write_text("precious")
    with pytest.raises(ValueError, match=r"there.csv exists; choose another name"):
        fix.write(tmp_path / "there.csv")
    with pytest.raises(ValueError, match="--link needs a folder"):
        fix.write(tmp_path / "fixed.csv", link=True)
    for rows, message in (
        ([Decision(9, "cat", "drop")], "has no row 9, which a decision names; nothing was written"),
        (
            [Decision(1, "cat", "drop")],
            "row 1 of .* has the label 'dog', but a decision has 'cat'; nothing was written",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            Fix(source, planned(None, Decisions(rows))).write(tmp_path / "fixed.csv")
    with pytest.raises(ValueError, match="the mode 'weight' needs the proposal"):
        planned(None, Decisions(DECIDED), "weight")
    data.write_bytes(data.read_bytes() + b"5,cat,9\n")
    with pytest.raises(ValueError, match="pets.csv has changed since"):
        fix.write(tmp_path / "fixed.csv")
    data.rename(tmp_path / "moved.csv")
    with pytest.raises(FileNotFoundError, match="is missing; give its new place with --data"):
        fix.write(tmp_path / "fixed.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["moved.csv", "there.csv"]


def test_ids_must_agree_too(tmp_path: Path) -> None:
    source = table(tmp_path, id="id")
    changes = planned(None, Decisions([Decision(0, "cat", "drop", id="2")]))
    with pytest.raises(ValueError, match="row 0 of .* has the id '1', but a decision has '2'; nothing was written"):
        Fix(source, changes).write(tmp_path / "fixed.csv")


def test_in_place_only_when_asked(tmp_path: Path) -> None:
    source = table(tmp_path)
    fix = Fix(source, planned(proposal(source)))
    assert fix.write(in_place=True)[0] == Path(source.path)
    assert Path(source.path).read_bytes().startswith(b"id,label,x\n1,dog,5\n")
    with pytest.raises(ValueError, match="has changed since"):
        fix.write(in_place=True)


def test_a_log_overwrites_no_file(tmp_path: Path) -> None:
    source = table(tmp_path)
    data = Path(source.path).rename(tmp_path / "fixed.changes.csv")
    before = data.read_bytes()
    out, log = Fix(source, planned(proposal(source)), data=data).write(tmp_path / "fixed.csv")
    assert data.read_bytes() == before
    assert log.name == "fixed.changes-2.csv"
    logs = []
    for new in ("bird", "fish"):
        now = Source(str(out), "table", digest(out), label="label", encoding="utf-8", separator=",")
        given = {"bird": "dog", "fish": "bird"}[new]
        logs.append(Fix(now, planned(None, Decisions([Decision(0, given, "other", new)]))).write(in_place=True)[1])
    assert [path.name for path in logs] == ["fixed.changes-3.csv", "fixed.changes-4.csv"]
    assert [path.read_text().splitlines()[1][:20] for path in logs] == ["0,,dog,relabel,bird,", "0,,bird,relabel,fish"]


def test_a_file_that_was_moved(tmp_path: Path) -> None:
    source = table(tmp_path)
    moved = Path(source.path).rename(tmp_path / "elsewhere.csv")
    out, _ = Fix(source, planned(proposal(source)), data=moved).write(tmp_path / "fixed.csv")
    assert b"1,dog,5" in out.read_bytes()


def test_parquet_keeps_schema_types_and_metadata(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "pets.parquet"
    labels = pa.array(["a", "b", None, "a"]).dictionary_encode()
    schema = pa.schema(
        [
            pa.field("id", pa.int32()),
            pa.field("label", labels.type, metadata={"unit": "kind"}),
            ("x", pa.list_(pa.float32())),
        ],
        metadata={"made": "by hand"},
    )
    before = pa.table([pa.array([1, 2, 3, 4], pa.int32()), labels, [[0.1], [], None, [2.0]]], schema=schema)
    pq.write_table(before, path, compression="zstd", row_group_size=2)
    before = pq.read_table(path)
    source = Source(str(path), "table", digest(path), label="label")
    changes = planned(None, Decisions([Decision(0, "a", "other", "b"), Decision(1, "b", "drop")]))
    after = pq.read_table(Fix(source, changes).write(tmp_path / "fixed.parquet")[0])
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.column("label").to_pylist() == ["b", None, "a"]
    kept = before.take([0, 2, 3])
    assert all(after.column(name).equals(kept.column(name)) for name in ("id", "x"))
    made = pq.ParquetFile(tmp_path / "fixed.parquet").metadata
    assert made.row_group(0).column(0).compression == "ZSTD"
    weighed = Fix(source, planned(Proposal(source, ["a"], 4, [Suspect(3, "a", "b", 0.25)]), mode="weight"), "weight")
    found = pq.read_table(weighed.write(tmp_path / "weighed.parquet")[0])
    assert found.column("label_weight").to_pylist() == [1, 1, 1, 0.25]
    assert found.drop_columns(["label_weight"]).equals(before)


def test_numbers_as_labels_of_a_parquet_file(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"label": pa.array([0, 1, 1], pa.int8())}), path)
    source = Source(str(path), "table", digest(path), label="label")
    fixed, _ = Fix(source, planned(None, Decisions([Decision(0, "0", "other", "1")]))).write(tmp_path / "f.parquet")
    assert pq.read_table(fixed).column("label").to_pylist() == [1, 1, 1]
    as_pandas = planned(None, Decisions([Decision(0, "0.0", "other", "1.0")]))
    fixed, _ = Fix(source, as_pandas).write(tmp_path / "h.parquet")
    assert pq.read_table(fixed).column("label").to_pylist() == [1, 1, 1]
    wrong = Fix(source, planned(None, Decisions([Decision(0, "0", "other", "one")])))
    with pytest.raises(ValueError, match="a new label does not fit the column 'label' .int8.: "):
        wrong.write(tmp_path / "g.parquet")
    assert not (tmp_path / "g.parquet").exists()


@pytest.mark.parametrize("kind", ["float32", "binary", "timestamp", "integers with gaps", "decimal", "date"])
def test_labels_of_any_type_of_a_parquet_file(tmp_path: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pandas = pytest.importorskip("pandas")
    numbers = pa.array([0.1, 0.2] * 60)
    days = pa.array(pandas.to_datetime(["2020-01-01", "2021-01-01"] * 60))
    labels = {
        "float32": lambda: numbers.cast(pa.float32()),
        "binary": lambda: pa.array([b"cat", b"dog"] * 60),
        "timestamp": lambda: days,
        "integers with gaps": lambda: pa.array([1, 2] * 59 + [None, 2], pa.int64()),
        "decimal": lambda: numbers.cast(pa.decimal128(9, 2)),
        "date": lambda: days.cast(pa.date32()),
    }[kind]()
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"x": [float(row % 7) for row in range(120)], "label": labels}), path)
    read = read_table(path, label="label")
    source = Source(str(path), "table", digest(path), label="label")
    given, other = (read.classes[code] for code in read.labels[:2])
    found = Proposal(source, read.classes, 120, [Suspect(0, given, other, 0.1, "1", 0.9, sure=True)])
    for mode in ("relabel", "drop", "weight"):
        out, _ = Fix(source, planned(found, None, mode), mode).write(tmp_path / f"{mode}.parquet")
        after = pq.read_table(out).column("label")
        assert after.type == labels.type
        assert after[0].as_py() == labels[0 if mode == "weight" else 1].as_py()
        assert after[-1].as_py() == labels[-1].as_py()


# ---------------------------------------------------------------------- folders


@pytest.fixture
def pictures(tmp_path: Path) -> Source:
    for name in ("cat/1.png", "cat/sub/2.png", "dog/1.png", "dog/1-from-cat.png", "read.me"):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return Source(str(tmp_path / "pets"), "pictures", digest(tmp_path / "pets"))


MOVED = Decisions(
    [
        Decision(0, "cat", "other", "dog", "cat/1.png"),
        Decision(1, "cat", "other", "bird", "cat/sub/2.png"),
        Decision(3, "dog", "drop", None, "dog/1.png"),
    ]
)


def contents(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("link", [False, True])
def test_a_folder_of_copies_or_links(pictures: Source, tmp_path: Path, link: bool) -> None:
    out, log = Fix(pictures, planned(None, MOVED)).write(tmp_path / "fixed", link=link)
    assert contents(out) == {
        "dog/1.png": "cat/1.png",
        "dog/1-from-cat.png": "dog/1-from-cat.png",
        "bird/sub/2.png": "cat/sub/2.png",
        "read.me": "read.me",
    }
    kept = Decisions(MOVED.rows[:2])
    again, _ = Fix(pictures, planned(None, kept)).write(tmp_path / "again", link=link)
    assert contents(again) == {
        "dog/1.png": "dog/1.png",
        "dog/1-from-cat.png": "dog/1-from-cat.png",
        "dog/1-from-cat-2.png": "cat/1.png",
        "bird/sub/2.png": "cat/sub/2.png",
        "read.me": "read.me",
    }
    assert (again / "dog" / "1.png").is_symlink() == link
    assert log.name == "fixed.changes.csv"
    assert digest(pictures.path) == pictures.digest
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("link", [False, True])
def test_class_folders_that_are_links(tmp_path: Path, link: bool) -> None:
    for name in ("store/cats/1.png", "store/dogs/sub/2.png", "pets/bird/3.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).symlink_to(tmp_path / "store" / f"{name}s")
    (tmp_path / "store" / "cats" / "dogs").symlink_to(tmp_path / "store" / "dogs")
    for loop, end in (("pets/bird/up", "pets"), ("store/dogs/cats", "store/cats"), ("store/dogs/store", "store")):
        (tmp_path / loop).symlink_to(tmp_path / end)
    pets = tmp_path / "pets"
    source = Source(str(pets), "pictures", digest(pets))
    files = [("bird/3.png", "bird"), ("cat/1.png", "cat"), ("cat/dogs/sub/2.png", "cat")]
    files += [("dog/cats/1.png", "dog"), ("dog/sub/2.png", "dog")]
    assert class_files(pets, (".png",)) == files
    changes = planned(None, Decisions([Decision(1, "cat", "other", "bird", "cat/1.png")]))
    out, _ = Fix(source, changes).write(tmp_path / "fixed", link=link)
    assert set(contents(out)) == {name for name, _ in files} - {"cat/1.png"} | {"bird/1.png"}
    (tmp_path / "store" / "cats" / "1.png").write_text("another")
    assert digest(pets) != source.digest


def test_folders_of_train_and_test(tmp_path: Path) -> None:
    for name in ("train/cat/1.png", "train/dog/1.png", "test/cat/2.png"):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pets" / name).write_text(name)
    source = Source(str(tmp_path / "pets"), "pictures", digest(tmp_path / "pets"))
    changes = planned(None, Decisions([Decision(1, "cat", "other", "dog", "train/cat/1.png")]))
    out, _ = Fix(source, changes).write(tmp_path / "fixed")
    moved = {"train/dog/1-from-cat.png": "train/cat/1.png"}
    assert contents(out) == moved | {name: name for name in ("train/dog/1.png", "test/cat/2.png")}


def test_folders_of_texts(tmp_path: Path) -> None:
    for name in ("good/1.txt", "bad/2.txt", "bad/cover.png"):
        (tmp_path / "mails" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mails" / name).write_text(name)
    source = Source(str(tmp_path / "mails"), "text", digest(tmp_path / "mails"))
    changes = planned(None, Decisions([Decision(0, "bad", "other", "good", "bad/2.txt")]))
    out, _ = Fix(source, changes).write(tmp_path / "labels.csv")
    assert out.read_text().splitlines()[1:] == ["bad/2.txt,bad,good", "good/1.txt,good,good"]
    out, _ = Fix(source, changes).write(tmp_path / "fixed")
    assert set(contents(out)) == {"good/1.txt", "good/2.txt", "bad/cover.png"}


def test_a_list_of_labels(pictures: Source, tmp_path: Path) -> None:
    out, _ = Fix(pictures, planned(None, MOVED)).write(tmp_path / "labels.csv")
    assert out.read_text().splitlines() == [
        "file,given_label,label",
        "cat/1.png,cat,dog",
        "cat/sub/2.png,cat,bird",
        "dog/1-from-cat.png,dog,dog",
    ]
    found = Proposal(pictures, ["cat", "dog"], 4, [Suspect(0, "cat", "dog", 0.1, "cat/1.png")])
    out, _ = Fix(pictures, planned(found, mode="weight"), "weight").write(tmp_path / "weights.csv")
    assert out.read_text().splitlines()[:3] == [
        "file,given_label,label,label_weight",
        "cat/1.png,cat,cat,0.1",
        "cat/sub/2.png,cat,cat,1.0",
    ]


@pytest.mark.parametrize(
    ("one", "out", "message"),
    [
        (
            Decision(0, "cat", "other", "../evil", "cat/1.png"),
            "o",
            "the label '../evil' cannot be the name of a folder",
        ),
        (Decision(0, "cat", "other", "..", "cat/1.png"), "o", "the label '..' cannot be the name of a folder"),
        (Decision(0, "dog", "drop", None, "cat/1.png"), "o", "has no file 'cat/1.png' with the label 'dog'"),
        (Decision(0, "cat", "drop", None, "../x"), "o", "has no file '../x' with the label 'cat'"),
        (Decision(0, "cat", "drop", None, "cat/1.png"), "pets/out", "is inside the data"),
    ],
)
def test_a_folder_is_refused(pictures: Source, tmp_path: Path, one: Decision, out: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Fix(pictures, planned(None, Decisions([one]))).write(tmp_path / out)
    with pytest.raises(ValueError, match="--in-place is for tables"):
        Fix(pictures, []).write(in_place=True)
    assert [path.name for path in tmp_path.iterdir()] == ["pets"]


# ---------------------------------------------------------------------- the command


def run(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    proposal(table(tmp_path)).write(tmp_path / "r" / "proposal.json")
    return tmp_path / "r"


def test_fix_from_a_folder_a_proposal_and_decisions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder.parent / "fixed.csv"
    assert run("fix", folder, "--out", out, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "proposal.json is a proposal without decisions." in said
    assert "pets.csv, rows with another label: 1\n" in said
    assert "cat -> dog" in said
    assert "Nothing was written (--dry-run)." in said
    assert not out.exists()
    assert run("fix", folder / "proposal.json", "--out", out) == 0
    assert b"1,dog,5" in out.read_bytes()
    assert f"wrote {out}" in capsys.readouterr().out
    found = Proposal.read(folder / "proposal.json")
    Decisions.of(found, DECIDED).write(folder / "decisions.json")
    assert run("fix", folder, "--out", out) == 2
    assert "fixed.csv exists; choose another name" in capsys.readouterr().err
    out.unlink()
    assert run("fix", folder, "--out", out) == 0
    assert "decisions.json, decisions: 3." in capsys.readouterr().out
    assert out.read_bytes() == b"id,label,x\n1,cat,5\n2,dog,6\n3,=new,7\n"
    alone = (folder / "decisions.json").rename(folder.parent / "alone.json")
    assert run("fix", alone, "--out", folder.parent / "again.csv") == 0
    assert (folder.parent / "again.csv").read_bytes() == out.read_bytes()


def test_a_table_of_decisions_needs_its_proposal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Proposal.read(folder / "proposal.json")
    path = Decisions.of(found, DECIDED).write(folder.parent / "d.csv")
    out = folder.parent / "fixed.csv"
    assert run("fix", path, "--out", out) == 2
    assert "does not say which data it is about" in capsys.readouterr().err
    assert run("fix", path, "--out", out, "--proposal", folder / "proposal.json", "--mode", "weight") == 0
    assert b"3,-1,7,0\n" in out.read_bytes()
    other = Proposal(found.source, ["cat"], 4).write(folder.parent / "other.json")
    written = Decisions.of(found, DECIDED).write(folder.parent / "d.json")
    assert run("fix", written, "--out", out, "--proposal", other) == 2
    assert "d.json is not about the proposal" in capsys.readouterr().err
    assert run("fix", other, "--out", out, "--proposal", other) == 2
    assert "other.json is a proposal; --proposal is for decisions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fix", "nowhere"], "nowhere does not exist; `curriculum clean` writes proposals"),
        (["fix", "r"], "give either --out FIXED or --in-place"),
        (["fix", "r", "--out", "f.csv", "--in-place"], "either --out FIXED or --in-place"),
        (["fix", "r", "--out", "f.csv", "--min-probability", "2"], "--min-probability must lie between 0 and 1, got 2"),
        (
            ["fix", "r", "--out", "f.csv", "--mode", "weight", "--min-probability", "0.5"],
            "the mode 'weight' weights all",
        ),
        (["review", "nowhere"], "no proposal found at nowhere; `curriculum clean` writes one"),
        (["review", "r", "--export", "datasets"], "--export FORM needs --out DIR"),
        (["review", "r", "--out", "o"], "--export FORM needs --out DIR"),
        (["review", "r", "--export", "fiftyone", "--out", "o"], "FiftyOne shows only pictures"),
    ],
)
def test_mistakes_get_one_sentence(
    folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    assert run(*words) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in folder.parent.iterdir()) == ["pets.csv", "r"]


def test_out_to_label_studio_and_back(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("review", folder, "--export", "label-studio", "--out", tmp_path / "ls") == 0
    assert "labelling.xml" in capsys.readouterr().out
    tasks = json.loads((tmp_path / "ls" / "tasks.json").read_text())
    answers = [{**task["data"], "label": "dog"} for task in tasks[:2]]
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    assert run("review", folder, "--import", tmp_path / "answers.json") == 0
    assert "2 answers are now decisions" in capsys.readouterr().out
    assert [one.label for one in Decisions.read(folder / "decisions.json").rows] == ["dog", "dog"]
    (tmp_path / "answers.json").write_text(json.dumps([{"row": 3, "remove": "drop this row"}]))
    assert run("review", folder, "--import", tmp_path / "answers.json") == 0
    assert [one.decision for one in Decisions.read(folder / "decisions.json").rows] == ["accept", "other", "drop"]
