"""Proposals as files: written, read back, and never trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchcurriculum.clean import Proposal, Share, Source, Suspect, digest

SOURCE = Source("/data/pets.csv", "table", "00", label="kind", encoding="utf-8", separator=",")
DOT = "data:image/png;base64,iVBORw0KGgo="


def proposal() -> Proposal:
    rows = [
        Suspect(7, "cat", "dog", 0.01, "x7", 0.98, True, "It looks like a dog.", {"values": {"legs": "4"}}),
        Suspect(3, "-1", None, 0.4, show={"picture": DOT, "text": "a\udcff<b>"}),
    ]
    return Proposal(SOURCE, ["cat", "dog", "-1"], 100, rows, Share(0.02, 0.0, 0.05), method="a net", notes=["n"])


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    written = proposal().write(tmp_path / "new" / "proposal.json")
    assert Proposal.read(written) == proposal()
    assert Proposal.read(written).key == proposal().key
    assert Proposal.read(written).key != Proposal(SOURCE, ["cat"], 100).key


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("format",), 2, "this version reads format 1 only"),
        (("source",), [], "source must be an object, got list"),
        (("source", "kind"), "video", "source.kind must be one of table, pictures, text, got 'video'"),
        (("source", "label"), None, "source.label must name the label column"),
        (("source", "separator"), ";;", "source.separator must be one letter"),
        (("share", "low"), 2, "share.low must be a number from 0 to 1, got 2"),
        (("rows",), {}, "rows must be a list"),
        (("rows", 0, "row"), -1, "a row must be a number from 0, got -1"),
        (("rows", 0, "row"), True, "a row must be a number from 0, got True"),
        (("rows", 0, "row"), 3, "a row occurs twice"),
        (("rows", 0, "given"), 1, "row 7: given must be a text, got 1"),
        (("rows", 0, "quality"), None, "row 7: quality must be a number from 0 to 1, got None"),
        (("rows", 0, "suggested"), "cat", "row 7 is marked sure but suggests no other label"),
        (("rows", 0, "sure"), "yes", "row 7: sure must be true or false"),
        (("rows", 0, "called"), 1, "row 7: called must be true or false"),
        (("rows", 0, "called"), False, "row 7 is marked sure but not called wrong"),
        (("rows", 0, "evil"), 1, "a row has unknown parts: 'evil'"),
        (("rows", 0, "show"), {"picture": "https://host/x.png"}, "row 7: show.picture must be a data URI"),
        (("rows", 0, "show"), {"picture": "data:image/svg+xml;base64,AAAA"}, "row 7: show.picture must be a data URI"),
        (("rows", 0, "show"), {"values": {"a": 1}}, "row 7: show.values must be an object of texts"),
        (("classes",), "cat", "classes must be a list of texts"),
        (("classes",), ["a", "a"], "a class occurs twice"),
        (("total",), 1, "total must be the number of all rows, and at least 2, got 1"),
        (("health",), ["diverged"], "an unhealthy run must not mark rows sure"),
    ],
)
def test_a_damaged_proposal_is_refused(tmp_path: Path, place: tuple[Any, ...], value: Any, message: str) -> None:
    path = proposal().write(tmp_path / "p.json")
    held = json.loads(path.read_text())
    part = held
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    path.write_text(json.dumps(held))
    with pytest.raises(ValueError, match=f"p.json is not a usable proposal: .*{message}"):
        Proposal.read(path)


@pytest.mark.parametrize("text", ["{", "[]", "\xff", '{"format": NaN}', "[" * 100_000])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="p.json .* cannot be a proposal"):
        Proposal.read(tmp_path / "p.json")


def test_a_digest_changes_with_every_byte_and_name(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "1.png").write_bytes(b"a")
    first = digest(tmp_path)
    assert digest(tmp_path / "cats" / "1.png") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    (tmp_path / ".DS_Store").write_bytes(b"x")
    assert digest(tmp_path) == first
    (tmp_path / "cats" / "1.png").write_bytes(b"b")
    assert digest(tmp_path) != first
    (tmp_path / "cats" / "1.png").write_bytes(b"a")
    (tmp_path / "cats" / "1.png").rename(tmp_path / "cats" / "2.png")
    assert digest(tmp_path) != first
    with pytest.raises(FileNotFoundError, match="does not exist"):
        digest(tmp_path / "none")
