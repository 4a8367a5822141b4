"""Finds the proposal and the decisions that a path refers to."""

from __future__ import annotations

from pathlib import Path

from .decisions import Decisions
from .proposal import Proposal, Source, read_json

__all__ = ["DECISIONS", "PROPOSAL", "decisions_in", "read_for_fix", "read_for_review"]

PROPOSAL, DECISIONS = "proposal.json", "decisions.json"


def decisions_in(folder: Path, digest: str) -> Decisions | None:
    """The decisions in the folder of a review, if there are any; ValueError if they are about other data.

    Args:
        folder: The folder.
        digest: Of the data, see ``digest``.
    """
    path = folder / DECISIONS
    if not path.is_file():
        return None
    held = Decisions.read(path)
    if held.source is None or held.source.digest != digest:
        about = "unknown data" if held.source is None else held.source.path
        raise ValueError(
            f"{path} is about other data ({about}, or an earlier version of it); move it, or choose another folder "
            "with --review"
        )
    return held


def read_for_review(path: Path) -> tuple[Proposal, Path]:
    """The proposal in a file or folder, and the file for its decisions next to it."""
    path = path / PROPOSAL if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"no proposal found at {path}; `curriculum clean` writes one")
    return Proposal.read(path), path.with_name(DECISIONS)


def read_for_fix(
    path: Path, proposal_path: Path | None = None
) -> tuple[Source, Proposal | None, Decisions | None, str]:
    """Finds what to change: decisions or, without any, a proposal.

    Args:
        path: A file of either, or a folder with both.
        proposal_path: The proposal that decisions are about, if it is not next to them.

    Returns:
        The data, the proposal or None, the decisions or None, and a sentence about them.
    """
    folder = path.is_dir()
    if folder:
        path = path / DECISIONS if (path / DECISIONS).is_file() else path / PROPOSAL
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; `curriculum clean` writes proposals, and a review decisions")
    if path.suffix.lower() != ".csv" and "decisions" not in read_json(path, "a proposal or decisions"):
        if proposal_path is not None:
            raise ValueError(f"{path} is a proposal; --proposal is for decisions")
        proposal = Proposal.read(path)
        return proposal.source, proposal, None, f"{path} is a proposal without decisions."
    decisions = Decisions.read(path)
    beside = path.with_name(PROPOSAL)
    found = None if proposal_path is None and not beside.is_file() else Proposal.read(proposal_path or beside)
    if found is not None and decisions.proposal not in (None, found.key):
        if proposal_path is not None:
            raise ValueError(f"{path} is not about the proposal {proposal_path}")
        if folder:
            words = f"is about another proposal than {beside}; move it, or apply it with `curriculum fix {path}`"
            raise ValueError(f"{path} {words}")
        found = None
    if found is not None:
        decisions = Decisions.of(found, decisions.rows)
    if decisions.source is None:
        raise ValueError(f"{path} does not say which data it is about; give the proposal with --proposal FILE")
    return decisions.source, found, decisions, f"{path}, decisions: {len(decisions.rows):,}."
