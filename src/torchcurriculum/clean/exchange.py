"""Exports a proposal to other tools (Label Studio, FiftyOne, Argilla, datasets) and imports their answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..audit import label_studio
from ..record.files import overwrite
from .decisions import Decision, Decisions
from .proposal import LARGEST, Proposal, Suspect

__all__ = ["FORMS", "read_answers", "write_for"]

DROP = "drop"


def write_for(form: str, proposal: Proposal, folder: str | Path) -> list[Path]:
    """Writes the suspects of a proposal for another tool.

    Args:
        form: ``"label-studio"``: ``tasks.json`` and ``labelling.xml``. ``"argilla"``: ``settings.json`` and
            ``records.json``. ``"fiftyone"``: ``labels.json``, a FiftyOneImageClassificationDataset; for pictures.
            ``"datasets"``: ``suspects.jsonl`` for ``load_dataset("json", ...)``.
        proposal: The proposal.
        folder: Where to write; existing files are overwritten.

    Returns:
        The files.
    """
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}; known: {', '.join(FORMS)}")
    made = FORMS[form](proposal)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        with overwrite(folder / name) as file:
            file.write(text)
    return [folder / name for name in made]


def read_answers(proposal: Proposal, path: str | Path) -> Decisions:
    """Decisions from the answers that people gave in Label Studio (JSON or JSON-MIN) or Argilla (``records.to_json``).

    The given label means keep, the suggested one accept; rows without an answer stay undecided.
    """
    path = Path(path)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} is larger than {LARGEST:,} bytes")
    suspects = {row.row: row for row in proposal.rows}
    try:
        held = json.loads(path.read_bytes())
        argilla = isinstance(held, list) and any(isinstance(one, dict) and "fields" in one for one in held)
        found = dict(_argilla_answers(held) if argilla else label_studio.answers(held))
        rows = []
        for row, label in found.items():
            if row not in suspects:
                raise ValueError(f"row {row} is not in the proposal")
            rows.append(_decision(suspects[row], label))
        return Decisions.of(proposal, rows)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no usable answers: {error}") from None


def _decision(row: Suspect, label: str | None) -> Decision:
    if label is None:
        return Decision(row.row, row.given, "drop", None, row.id)
    if label == row.given:
        return Decision(row.row, row.given, "keep", None, row.id)
    return Decision(row.row, row.given, "accept" if label == row.suggested else "other", label, row.id)


def _shown(proposal: Proposal) -> str:
    """How all rows can be shown: as picture, text or values."""
    if proposal.rows and all(row.show.get("picture") for row in proposal.rows):
        return "picture"
    return "text" if any(row.show.get("text") for row in proposal.rows) else "values"


def _text(row: Suspect) -> str:
    values = "\n".join(f"{name}: {value}" for name, value in (row.show.get("values") or {}).items())
    return "\n".join(part for part in (row.show.get("text") or "", values) if part) or row.id or f"row {row.row}"


def _label_studio(proposal: Proposal) -> dict[str, str]:
    shown = _shown(proposal)
    field = label_studio.OBJECTS[shown][1]
    tasks = []
    for row in proposal.rows:
        values = row.show.get("values") or {"row": str(row.row)}
        what = {"picture": row.show.get("picture"), "text": _text(row), "values": values}[shown]
        data = {"row": row.row, "id": row.id, field: what, "why": row.why}
        tasks.append(label_studio.task(data, row.given, row.suggested, round(1 - row.quality, 6)))
    return {"tasks.json": _json(tasks), "labelling.xml": label_studio.interface(_classes(proposal), shown) + "\n"}


def _classes(proposal: Proposal) -> list[str]:
    used = [label for row in proposal.rows for label in (row.given, row.suggested) if label is not None]
    return list(dict.fromkeys([*proposal.classes, *used]))


def _argilla(proposal: Proposal) -> dict[str, str]:
    picture = _shown(proposal) == "picture"
    field = {"name": "sample", "required": True, "settings": {"type": "image"} if picture else {"type": "text"}}
    if not picture:
        field["settings"] = {"type": "text", "use_markdown": False}

    def question(name: str, title: str, labels: list[str], required: bool) -> dict[str, Any]:
        options = [{"value": label, "text": label} for label in labels]
        settings = {"type": "label_selection", "options": options, "visible_options": None}
        return {"name": name, "title": title, "required": required, "settings": settings}

    settings = {
        "guidelines": "The metadata field 'given' is the label in the data; the suggestion comes from a network.",
        "fields": [field],
        "questions": [
            question("label", "The right label", _classes(proposal), True),
            question("leave_out", "Or leave the row out", [DROP, "keep"], False),
        ],
        "metadata": [
            {"name": "row", "settings": {"type": "integer"}},
            {"name": "given", "settings": {"type": "terms"}},
            {"name": "quality", "settings": {"type": "float"}},
        ],
        "vectors": [],
        "allow_extra_metadata": True,
    }
    records = [
        {
            "id": str(row.row),
            "fields": {"sample": row.show["picture"] if picture else _text(row)},
            "metadata": {"row": row.row, "given": row.given, "quality": round(row.quality, 6)},
            "suggestions": {}
            if row.suggested is None
            else {"label": {"value": row.suggested, "score": row.suggestion_probability, "agent": "torchcurriculum"}},
            "responses": {},
            "vectors": {},
        }
        for row in proposal.rows
    ]
    return {"settings.json": _json(settings), "records.json": _json(records)}


def _argilla_answers(records: list[Any]) -> Iterator[tuple[int, str | None]]:
    """(row, label, or None for a row to drop) of the records with a response; the last of several counts."""
    for one in records:
        given = one.get("responses") if isinstance(one, dict) else None
        row = str(one.get("id")) if isinstance(one, dict) else ""
        if not isinstance(given, dict) or not row.isdecimal():
            raise ValueError(f"a record has no row number or no responses: {str(one)[:80]}")
        values = {}
        for name in ("label", "leave_out"):
            parts = given.get(name) or []
            held = parts[-1] if isinstance(parts, list) and parts else {}
            values[name] = held.get("value") if isinstance(held, dict) else None
        if values["leave_out"] == DROP:
            yield int(row), None
        elif isinstance(values["label"], str):
            yield int(row), values["label"]


def _fiftyone(proposal: Proposal) -> dict[str, str]:
    if proposal.source.kind != "pictures":
        raise ValueError(f"FiftyOne shows only pictures, but {proposal.source.path} is a {proposal.source.kind}")
    labels = {
        str(Path(proposal.source.path) / (row.id or "")): {
            "label": row.given,
            "attributes": {
                "suggested": row.suggested,
                "quality": row.quality,
                "suggestion_probability": row.suggestion_probability,
                "called": row.called,
                "sure": row.sure,
                "why": row.why,
                "row": row.row,
            },
        }
        for row in proposal.rows
    }
    return {"labels.json": _json({"classes": None, "labels": labels})}


def _datasets(proposal: Proposal) -> dict[str, str]:
    folder = Path(proposal.source.path)
    lines = []
    for row in proposal.rows:
        held: dict[str, Any] = {name: getattr(row, name) for name in ("row", "id", "given", "suggested", "quality")}
        held |= {"suggestion_probability": row.suggestion_probability, "called": row.called, "sure": row.sure}
        held["why"] = row.why
        if proposal.source.kind == "pictures":
            held["image"] = str(folder / (row.id or ""))
        held |= {name: row.show[name] for name in ("text", "values") if row.show.get(name)}
        lines.append(json.dumps(held, allow_nan=False))
    return {"suspects.jsonl": "".join(f"{line}\n" for line in lines)}


def _json(held: Any) -> str:
    return json.dumps(held, indent=0, allow_nan=False) + "\n"


FORMS: dict[str, Callable[[Proposal], dict[str, str]]] = {
    "label-studio": _label_studio,
    "argilla": _argilla,
    "fiftyone": _fiftyone,
    "datasets": _datasets,
}
