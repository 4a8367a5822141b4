"""A small local server for the review page, which writes each decision to disk immediately.

It listens only on the loopback address, at a port chosen by the system, and answers only requests that have the token
in the address and come from the page itself. So other pages in the same browser can neither read nor decide.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .decisions import Decision, Decisions
from .page import POLICY, page
from .proposal import Proposal

__all__ = ["Review"]

LARGEST = 2**24  # bytes of a request, enough to accept all suspects at once
PATIENCE = 30.0  # seconds to wait for a request
HEADERS = {
    "Content-Security-Policy": POLICY + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Review:
    """A server for the review of one proposal.

    Args:
        proposal: The proposal to review.
        path: The file of the decisions. An existing file must be about the same proposal, and is continued.

    Example:
        >>> import tempfile
        >>> from torchcurriculum.clean import Source, Suspect
        >>> source = Source("/data/pets.csv", "table", "00", label="kind", encoding="utf-8", separator=",")
        >>> proposal = Proposal(source, ["cat", "dog"], 100, [Suspect(7, "cat", "dog", 0.02)])
        >>> with tempfile.TemporaryDirectory() as folder, Review(proposal, Path(folder) / "decisions.json") as review:
        ...     review.address.startswith("http://127.0.0.1:")
        True
    """

    def __init__(self, proposal: Proposal, path: Path) -> None:
        self.proposal, self.path = proposal, path
        self.suspects = {row.row: row for row in proposal.rows}
        self.decided: dict[int, Decision] = {}
        if path.exists():
            held = Decisions.read(path)
            if held.proposal != proposal.key:
                raise ValueError(f"{path} is about another proposal; move it, or review that one")
            self.decided = {one.row: one for one in held.rows}
        self.token = secrets.token_urlsafe(24)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def address(self) -> str:
        """The address to open in the browser."""
        return f"http://{self.host}/{self.token}/"

    def __enter__(self) -> Review:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()

    def run(self) -> None:
        """Serves until interrupted."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """Ends ``run`` from another thread."""
        self._server.shutdown()

    def decisions(self) -> Decisions:
        """All decisions so far, in the order of the proposal."""
        with self._lock:
            return self._in_order()

    def _in_order(self) -> Decisions:
        return Decisions.of(self.proposal, [self.decided[row] for row in self.suspects if row in self.decided])

    def html(self) -> bytes:
        """The page with the decisions so far."""
        return page(self.proposal, self.decisions(), str(self.path)).encode("utf-8", "replace")

    def take(self, sent: Any) -> None:
        """Writes decisions from the page to disk; ValueError if they are not about the proposal."""
        if not isinstance(sent, list) or not all(isinstance(one, dict) for one in sent):
            raise ValueError("decisions must be a list")
        new: dict[int, Decision | None] = {}
        for one in sent:
            suspect = self.suspects.get(one.get("row")) if isinstance(one.get("row"), int) else None
            if suspect is None:
                raise ValueError(f"row {one.get('row')!r} is not in the proposal")
            what = one.get("decision")
            label = one.get("label")
            new[suspect.row] = None if what is None else Decision(suspect.row, suspect.given, what, label, suspect.id)
        self.decide(new)

    def decide(self, new: Mapping[int, Decision | None]) -> None:
        """Adds decisions, or with None removes them, and writes all to disk."""
        with self._lock:
            merged = self.decided | dict(new)
            self.decided = {row: one for row, one in merged.items() if one is not None}
            self._in_order().write(self.path)


def _handler(review: Review) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE
        server_version, sys_version = "curriculum", ""

        def do_GET(self) -> None:
            if self._known("/"):
                self._answer(HTTPStatus.OK, review.html(), "text/html; charset=utf-8")

        def do_POST(self) -> None:
            if not self._known("/decisions"):
                return
            if self.headers.get("Origin") != f"http://{review.host}":
                self._answer(HTTPStatus.FORBIDDEN, b"only the page itself may decide\n")
                return
            length = self.headers.get("Content-Length") or ""
            if self.headers.get_content_type() != "application/json" or not length.isdecimal() or int(length) > LARGEST:
                self._answer(HTTPStatus.BAD_REQUEST, b"decisions must be JSON of a bounded size\n")
                return
            try:
                review.take(json.loads(self.rfile.read(int(length))))
            except (ValueError, TypeError, RecursionError) as error:
                self._answer(HTTPStatus.BAD_REQUEST, f"{error}\n".encode("utf-8", "replace"))
            except OSError as error:
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"not saved: {error}\n".encode("utf-8", "replace"))
            else:
                self._answer(HTTPStatus.NO_CONTENT, b"")

        def _known(self, place: str) -> bool:
            """Whether a request has our own host name (against DNS rebinding) and the token."""
            if self.headers.get("Host") != review.host:
                self._answer(HTTPStatus.FORBIDDEN, b"this is not the address of the review\n")
                return False
            if not hmac.compare_digest(self.path.encode("utf-8", "replace"), f"/{review.token}{place}".encode()):
                self._answer(HTTPStatus.NOT_FOUND, b"open the whole address that `curriculum review` printed\n")
                return False
            return True

        def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
            self.send_response(status)
            for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing, because the address contains the token."""

    return Handler
