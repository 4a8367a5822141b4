"""Tables as people have them: what a reader of tables gets wrong silently, or refuses without a reason."""

from __future__ import annotations

import csv
import random
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from torchcurriculum.clean.csvfile import find_layout
from torchcurriculum.clean.decisions import Decision, Decisions
from torchcurriculum.clean.delimited import Delimited
from torchcurriculum.clean.fix import Fix, planned
from torchcurriculum.clean.folds import train_folds
from torchcurriculum.clean.proposal import Source, digest
from torchcurriculum.clean.tables import read_table

pandas = pytest.importorskip("pandas")
ROWS = 60
KINDS = ("ash", "elm", "fir")


def value(row: int) -> float:
    return random.Random(row).uniform(-99, 99)


def written(folder: Path, head: str, line: Callable[[int], str]) -> Path:
    path = folder / "trees.csv"
    path.write_text("".join(f"{text}\n" for text in (head, *map(line, range(ROWS)))))
    return path


def kinds(path: Path, **options: object) -> dict[str, str]:
    return {one.name: one.taken for one in read_table(path, **options).columns}  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")
def test_text_columns_as_pandas_2_holds_them(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,kind", lambda row: f"{value(row):.3f},{'xyz'[row % 3]}{row % 2},{KINDS[row % 3]}")
    with pandas.option_context("future.infer_string", False):
        assert pandas.Series(["a"], dtype="str").dtype == object
        assert kinds(path) == {"kind": "label", "a": "number", "b": "category"}


@pytest.mark.parametrize("head", ["size;kind;", "size;kind", "size;kind;;"])
def test_a_separator_at_the_end_of_each_line(tmp_path: Path, head: str) -> None:
    ends = max(1, head.count(";") - 1) * ";"
    path = written(tmp_path, head, lambda row: f"{value(row):.2f}".replace(".", ",") + f";{KINDS[row % 3]}{ends}")
    source = read_table(path)
    assert source.classes == list(KINDS)
    assert {one.name: one.taken for one in source.columns}["size"] == "number"
    assert len(source) == ROWS


def test_one_line_with_an_extra_cell_is_still_damaged(tmp_path: Path) -> None:
    path = written(tmp_path, "a,kind,more", lambda row: f"{value(row)},{KINDS[row % 3]},{row % 4}" + "," * (row == 7))
    source = read_table(path, label="kind")
    assert source.skipped == [("line 9", "it has 4 cells, not 3")]


def test_weights_where_a_separator_ends_each_line() -> None:
    file = Delimited(b"a,kind\n1,ash,\n2,elm,\n", "utf-8", ",")
    assert file.weighted("w", {1: "0.5"}) == b"a,kind,w\n1,ash,1\n2,elm,0.5\n"
    assert file.relabelled("kind", {1: "fir"}) == b"a,kind\n1,ash,\n2,fir,\n"


def test_ids_with_a_name_that_two_columns_have(tmp_path: Path) -> None:
    path = written(tmp_path, "id,id,a,kind", lambda row: f"k{row},z{row},{value(row)},{KINDS[row % 3]}")
    layout = read_table(path).layout
    assert layout["id"] == "id"
    source = Source(str(path), "table", digest(path), "kind", "utf-8", ",", layout["id"])
    decisions = Decisions([Decision(3, "ash", "other", "fir", "k3")], None, source)
    out, _ = Fix(source, planned(None, decisions)).write(tmp_path / "fixed.csv")
    before, after = path.read_text().splitlines(), out.read_text().splitlines()
    assert [(old, new) for old, new in zip(before, after, strict=True) if old != new] == [
        (f"k3,z3,{value(3)},ash", f"k3,z3,{value(3)},fir")
    ]


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("a,b,label,label", "has two columns named 'label'; rename one of them"),
        ("a,b,kind,kind", "has two columns named 'kind'; rename one of them"),
        ("3,5,8,ash", "must name the columns, but it holds numbers and 'ash', which is a class of other lines too"),
        ("sep=,", r"is a note to Excel \(sep=\), not the names of the columns; delete it"),
    ],
)
def test_first_lines_that_are_refused(tmp_path: Path, head: str, words: str) -> None:
    path = written(tmp_path, head, lambda row: f"{int(value(row))},{row % 7},{KINDS[row % 3]},{KINDS[row % 3]}")
    with pytest.raises(ValueError, match=words):
        read_table(path)


@pytest.mark.parametrize("missing", ["NA", "nan", "null", "N/A", "#N/A"])
def test_a_missing_label_is_not_a_class(tmp_path: Path, missing: str) -> None:
    path = written(tmp_path, "a,kind", lambda row: f"{value(row)},{KINDS[row % 3] if row % 6 else missing}")
    source = read_table(path)
    assert source.classes == list(KINDS)
    assert "left out, it has no label: line 2, line 8, line 14 and 7 more" in source.message()


def test_the_classes_are_named_with_their_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "a,kind", lambda row: f"{value(row)},{('yes', 'TRUE', 'no')[row % 3 if row > 20 else 0]}")
    assert read_table(path).columns[0].why == "'yes' 34, 'TRUE' 13, 'no' 13"
    path = written(tmp_path, "a,kind", lambda row: f"{value(row)},k{row % 12}")
    assert read_table(path).columns[0].why.endswith("'k7' 5 and 4 more")


def test_classes_that_mean_nothing_found_are_classes(tmp_path: Path) -> None:
    path = written(tmp_path, "a,kind", lambda row: f"{value(row)},{('none', '-', '?')[row % 3]}")
    assert read_table(path).classes == ["-", "?", "none"]


@pytest.mark.parametrize(
    "form",
    [
        lambda number: f"USD {number:,.2f}".replace(",", " "),
        lambda number: f"{number:.2f} EUR",
        lambda number: f"{number:.2f}kg",
        lambda number: f"{number:.2f} years",
        lambda number: f"({-number:.2f})" if number < 0 else f"{number:.2f}",
        lambda number: f"(${-number:.2f})" if number < 0 else f"${number:.2f}",
        lambda number: f"{-number:.2f}-" if number < 0 else f"{number:.2f}",
        lambda number: f"{number:.2f}".replace("-", "\N{MINUS SIGN}"),
    ],
)
def test_numbers_with_units_and_in_brackets_are_numbers(tmp_path: Path, form: Callable[[float], str]) -> None:
    def line(row: int) -> str:
        return f"{form(value(row))},{value(row):.2f},{KINDS[row % 3]}"

    path = written(tmp_path, "it,plain,kind", line)
    source = read_table(path)
    assert kinds(path)["it"] == "number"
    assert np.array_equal(source.features[:, 0], source.features[:, 1])


@pytest.mark.parametrize("form", ["Room {0}", "{0}{1}", "A{0}", "{0} {1}"])
def test_codes_with_letters_are_not_numbers(tmp_path: Path, form: str) -> None:
    path = written(
        tmp_path, "it,b,kind", lambda row: f"{form.format(row % 8, 'xy'[row % 5 < 2])},{value(row)},{KINDS[row % 3]}"
    )
    assert kinds(path)["it"] == "category"


@pytest.mark.parametrize("form", ["DE{0} 3704 0044 0{1}32", "030/{0} {1} 44", "{0}-{1} {1}7 {0}2"])
def test_numbers_in_groups_are_not_sentences(tmp_path: Path, form: str) -> None:
    path = written(tmp_path, "it,b,kind", lambda row: f"{form.format(row + 10, row % 7)},{value(row)},{KINDS[row % 3]}")
    assert kinds(path)["it"] == "id"


def test_dates_of_two_forms_are_the_same_days(tmp_path: Path) -> None:
    def line(row: int) -> str:
        year, month, day = 2023 + row % 2, 1 + row % 12, 1 + row * 5 % 28
        mixed = f"{day:02}.{month:02}.{year}" if row % 3 else f"{year}-{month:02}-{day:02}"
        return f"{year}-{month:02}-{day:02},{mixed},{KINDS[row % 3]}"

    source = read_table(written(tmp_path, "plain,mixed,kind", line))
    assert {one.name: one.why for one in source.columns}["mixed"] == "d.m.Y and year-month-day"
    half = source.features.shape[1] // 2
    assert np.array_equal(source.features[:, :half], source.features[:, half:])


@pytest.mark.parametrize(
    ("good", "bad", "more"),
    [
        ("这个产品非常好用", "质量太差不推荐购买", "快递今天送到了我家里明天昨天早上晚上"),
        ("สินค้าดีมากชอบมาก", "แย่มากไม่แนะนำเลย", "ส่งของมาถึงบ้านวันนี้เมื่อวานตอนเช้าเย็น"),
        ("とても良い商品でした", "品質が悪くて残念です", "昨日の朝に家まで届きました夜は今日"),
    ],
)
def test_text_without_spaces_is_text(tmp_path: Path, good: str, bad: str, more: str) -> None:
    draw = random.Random(0)

    def line(row: int) -> str:
        before, after = ("".join(draw.choices(more, k=count)) for count in (9, 5))
        return f"{before}{(good, bad)[row % 2][draw.randrange(3) :]}{after},{more[row % 3 :][:3]},{row % 2}"

    path = tmp_path / "x.csv"
    path.write_text("\n".join(["review,city,label", *map(line, range(200))]), encoding="utf-8")
    source = read_table(path)
    assert [one.taken for one in source.columns] == ["label", "text", "category"]
    found = train_folds(source.features, source.labels, 2, kinds=("linear",))
    assert (found.probabilities.argmax(1) == source.labels).mean() > 0.9


def test_days_and_months_both_ways_round_are_not_dates(tmp_path: Path) -> None:
    def line(row: int) -> str:
        day, month = 13 + row % 15, 1 + row % 12
        date = f"{day}/{month}/2024" if row % 2 else f"{month}/{day}/2024"
        return f"{date},{value(row)},{KINDS[row % 3]}"

    assert kinds(written(tmp_path, "it,b,kind", line))["it"] in ("id", "category")


def test_numbers_whose_square_is_not_finite(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,kind", lambda row: f"1e{300 + row % 8},-1e{300 + row},{KINDS[row % 3]}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(read_table(path).features).all()


def test_durations_and_a_named_index_of_a_parquet_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(
        {
            "wait": [timedelta(hours=value(row)) if row % 9 else None for row in range(ROWS)],
            "kind": [KINDS[row % 3] for row in range(ROWS)],
        },
        index=pandas.Index([f"k{row * 7 % ROWS}" for row in range(ROWS)], name="customer"),
    )
    frame.to_parquet(tmp_path / "x.parquet")
    source = read_table(tmp_path / "x.parquet")
    assert {one.name: one.taken for one in source.columns} == {"kind": "label", "customer": "id", "wait": "number"}
    assert source.ids[:3] == ["k0", "k7", "k14"]


@pytest.mark.parametrize(("held", "new", "found"), [([0, 1, 1], "7", 7), ([True, False, True], "false", False)])
def test_a_label_that_no_row_of_a_parquet_file_has(tmp_path: Path, held: list, new: str, found: object) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    pandas.DataFrame({"kind": held}).to_parquet(path)
    source = Source(str(path), "table", digest(path), label="kind")
    fix = Fix(source, planned(None, Decisions([Decision(0, str(held[0]), "other", new)])))
    assert pandas.read_parquet(fix.write(tmp_path / "y.parquet")[0])["kind"].tolist() == [found, *held[1:]]


def test_a_label_of_blanks_is_refused() -> None:
    with pytest.raises(ValueError, match="row 3: label must be a text, got '  '"):
        Decision(3, "ash", "other", "  ")


def test_a_cell_longer_than_pythons_limit(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    path = written(
        tmp_path,
        "note,kind",
        lambda row: f"{f'{KINDS[row % 3]} grows here ' * (9000 if row == 3 else 1)}{row},{KINDS[row % 3]}",
    )
    assert len(read_table(path, features="tfidf")) == ROWS
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(("mark", "given"), [("utf-8-sig", "utf-8"), ("utf-16", "utf-16-le"), ("utf-8-sig", "UTF8")])
def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path: Path, mark: str, given: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("".join(["label,x\n", *(f"{'ab'[row % 2]},{value(row)}\n" for row in range(40))]).encode(mark))
    assert find_layout(path, encoding=given).encoding == mark
    assert read_table(path, label="label", encoding=given).classes == ["a", "b"]


def test_utf_32_and_a_tab_as_it_is_typed(tmp_path: Path) -> None:
    path = written(tmp_path, "a\tkind", lambda row: f"{value(row)}\t{KINDS[row % 3]}")
    path.write_bytes(path.read_text().encode("utf-32"))
    layout = read_table(path, sep="\\t").layout
    assert (layout["encoding"], layout["separator"]) == ("utf-32", "\t")
    file = Delimited(path.read_bytes(), "utf-32", "\t")
    assert file.relabelled("kind", {0: "elm"}).decode("utf-32") == path.read_bytes().decode("utf-32").replace(
        "ash", "elm", 1
    )


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"PK\x03\x04rest", "is a spreadsheet or a zip archive, not text; save it as CSV"),
        (b"\x1f\x8b\x08\x00rest", "is compressed, not text; save it as CSV"),
        (b'{"a": 1, "kind": "ash"}\n{"a": 2, "kind": "elm"}\n', "is JSON, not a table; save it as CSV or Parquet"),
        (b'[\n {"a": 1, "kind": "ash"},\n {"a": 2, "kind": "elm"}]', "is JSON, not a table"),
        (b"Trees of 2023\na,kind\n1,ash\n", "or delete the line if it does not name the columns"),
        (b'"a", "kind"\n1, "ash"\n', "has a blank before a quote; remove the blanks after separators"),
        (
            b"Trees of 2023,,\n,,\na,b,kind\n1,2,ash\n3,4,elm\n",
            "2 of 3 columns have no name in it; delete the lines above",
        ),
    ],
)
def test_files_that_are_not_tables_yet(tmp_path: Path, raw: bytes, words: str) -> None:
    (tmp_path / "x.csv").write_bytes(raw)
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path / "x.csv")


@pytest.mark.parametrize("copy", [lambda row: str(row % 3), lambda row: f"{row % 3 + 1}.0", lambda row: "NY-"[row % 3]])
def test_a_copy_of_the_label_is_left_out_whatever_its_kind(tmp_path: Path, copy: Callable[[int], str]) -> None:
    path = written(tmp_path, "code,b,kind", lambda row: f"{copy(row)},{value(row)},{KINDS[row % 3]}")
    assert [one.why for one in read_table(path).columns if one.name == "code"] == ["it is a copy of the label"]


@pytest.mark.parametrize("told", [lambda row: row % 3 + row / 99, lambda row: 1000 * (row % 3) + row * 7 % 60])
def test_ranges_that_tell_the_label_are_said(tmp_path: Path, told: Callable[[int], float]) -> None:
    path = written(tmp_path, "score,b,kind", lambda row: f"{told(row)},{value(row)},{KINDS[row % 3]}")
    notes = [note for note in read_table(path).notes if "alone predicts nearly every label" in note]
    assert [note.split()[0] for note in notes] == ["score"]


def test_a_rare_class_is_not_told_by_every_column(tmp_path: Path) -> None:
    lines = [
        f"{value(row):.3f},{'xy'[row % 7 == 0]},{'yes' if row % 5 else 'no'},{'ab'[row % 240 == 0]}"
        for row in range(1200)
    ]
    path = tmp_path / "x.csv"
    path.write_text("a,b,c,kind\n" + "\n".join(lines))
    assert not [note for note in read_table(path).notes if "alone predicts" in note]


@pytest.mark.parametrize(("text", "told"), [("seen by {} in row {}: a {}", True), ("seen by {} in row {}", False)])
def test_a_text_that_names_the_label_is_told(tmp_path: Path, text: str, told: bool) -> None:
    def line(row: int) -> str:
        words = text.format(("Ann", "Bob")[row % 2], row, KINDS[row % 3].upper())
        return f"{value(row)},{words},{KINDS[row % 3]}"

    notes = read_table(written(tmp_path, "a,remark,kind", line), features="tfidf").notes
    assert [note for note in notes if note.startswith("remark alone predicts nearly every label")] == notes[2:]
    assert bool(notes[2:]) == told
