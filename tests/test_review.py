"""The review page and its server: hostile texts, hostile requests, decisions on disk at once."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from torchcurriculum.clean import Proposal, Share, Source, Suspect
from torchcurriculum.clean.decisions import Decision, Decisions
from torchcurriculum.clean.page import page, write_page
from torchcurriculum.clean.serve import Review

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&\u2028<!--"
DOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def proposal(count: int = 60, text: str = "row") -> Proposal:
    """Suspects of three classes with pictures, texts and values in turn."""
    source = Source("/data/pets.csv", "table", "00", label="kind", encoding="utf-8", separator=",")
    kinds: list[dict[str, Any]] = [{"picture": DOT}, {"text": f"{text} " * 40}, {"values": {text: "1", "weight": text}}]
    classes = ["cat", "dog", "=bird"]
    rows = [
        Suspect(
            7 * place,
            classes[place % 3],
            classes[(place + 1 + place % 2) % 3] if place % 10 != 9 else None,
            min(0.9, 0.01 * (place + 1)),
            f"{text} {place}",
            None if place % 10 == 9 else max(0.05, 0.98 - 0.01 * place),
            sure=place < 5,
            why=f"Because of {text}.",
            show=kinds[place % 3],
        )
        for place in range(count)
    ]
    return Proposal(source, classes, max(1000, count), rows, Share(0.05, 0.03, 0.07), method=text, notes=[text])


# ---------------------------------------------------------------------- the page as text


class Scripts(HTMLParser):
    """What a browser would run or load of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_hostile_texts_are_only_text(tmp_path: Path) -> None:
    text = write_page(proposal(text=EVIL), tmp_path / "review.html").read_text()
    found = Scripts()
    found.feed(text)
    assert [attributes for tag, attributes in found.tags if tag == "script"] == [
        {"type": "application/json", "id": "data"},
        {},
    ]
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
    assert not [tag for tag, _ in found.tags if tag in ("img", "iframe", "link", "object", "base", "form")]
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["rows"][0]["id"] == f"{EVIL} 0"
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert not re.findall(r"https?://", text)


def test_the_answer_comes_first() -> None:
    text = page(proposal())
    assert text.index("60 of 1,000 labels look wrong") < text.index("<h2")
    assert "About <b>5.0%</b> of all labels are wrong (between 3.0% and 7.0%)" in text
    assert "5 of them are sure enough to be changed without review" in text
    source = proposal().source
    assert "None of 10 labels is called wrong" in page(Proposal(source, ["a"], 10))
    row = Suspect(0, "a", "b", 0.1, called=False)
    checked = page(Proposal(source, ["a", "b"], 10, [row]))
    assert "None of 10 labels is called wrong" in checked
    assert "1 label fits its row worse than another one. Check by hand" in checked
    assert "are wrong" not in checked
    both = page(Proposal(source, ["a", "b"], 10, [Suspect(1, "a", "b", 0.1), row]))
    assert "1 of 10 labels looks wrong" in both
    assert "1 more label fits its row worse" in both
    sick = page(Proposal(source, ["a"], 10, health=["The run diverged."]))
    assert "These labels could not be judged" in sick
    assert "<li>The run diverged.</li>" in sick
    assert "looks wrong" not in sick


# ---------------------------------------------------------------------- the server


@pytest.fixture
def review(tmp_path: Path) -> Iterator[Review]:
    with Review(proposal(), tmp_path / "decisions.json") as running:
        thread = threading.Thread(target=running.run)
        thread.start()
        yield running
        running.stop()
        thread.join()


def ask(review: Review, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(review.host, timeout=60)
    connection.request(method, path, body if isinstance(body, str | None) else json.dumps(body), headers)
    answer = connection.getresponse()
    held = (answer.status, answer.read())
    if answer.status == 200:
        assert answer.headers["Cache-Control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    connection.close()
    return held


def post(review: Review, body: Any, **headers: str) -> tuple[int, bytes]:
    usual = {"Content-Type": "application/json", "Origin": f"http://{review.host}"}
    return ask(review, "POST", f"/{review.token}/decisions", body, **{**usual, **headers})


def test_each_decision_is_on_disk_at_once(review: Review) -> None:
    assert review.host.startswith("127.0.0.1:")
    assert ask(review, "GET", f"/{review.token}/")[0] == 200
    assert post(review, [{"row": 0, "decision": "accept", "label": "dog"}]) == (204, b"")
    assert Decisions.read(review.path).rows == [Decision(0, "cat", "accept", "dog", "row 0")]
    assert post(review, [{"row": 7, "decision": "drop"}, {"row": 0, "decision": None}])[0] == 204
    assert Decisions.read(review.path).rows == [Decision(7, "dog", "drop", None, "row 1")]
    assert Decisions.read(review.path).proposal == proposal().key
    body = ask(review, "GET", f"/{review.token}/")[1].decode()
    assert '"decisions": [[7, {"decision": "drop"}]]' in body
    with Review(proposal(), review.path) as again:
        assert again.decisions().rows == [Decision(7, "dog", "drop", None, "row 1")]
    with pytest.raises(ValueError, match="decisions.json is about another proposal"):
        Review(proposal(59), review.path)


def test_strangers_are_refused(review: Review) -> None:
    good = [{"row": 0, "decision": "keep"}]
    for method, path in (("GET", "/"), ("GET", "/wrong/"), ("GET", f"/{review.token}"), ("POST", "/decisions")):
        assert ask(review, method, path)[0] == 404
    assert ask(review, "GET", f"/{review.token}/../../etc/passwd")[0] == 404
    assert ask(review, "GET", f"/{review.token}/", Host="evil.example")[0] == 403
    assert ask(review, "GET", f"/{review.token}/", Host=review.host.replace("127.0.0.1", "rebound.example"))[0] == 403
    assert post(review, good, Origin="http://evil.example")[0] == 403
    assert post(review, good, Origin="null")[0] == 403
    assert ask(review, "POST", f"/{review.token}/decisions", good, **{"Content-Type": "application/json"})[0] == 403
    assert post(review, good, **{"Content-Type": "text/plain"})[0] == 400
    assert ask(review, "PUT", f"/{review.token}/decisions")[0] == 501
    assert not review.path.exists()
    assert b"data" not in ask(review, "GET", "/")[1]


@pytest.mark.parametrize(
    "body",
    [
        "{",
        {"row": 0},
        [1],
        [{"row": 1, "decision": "keep"}],
        [{"row": True, "decision": "keep"}],
        [{"row": [], "decision": "keep"}],
        [{"row": 0, "decision": "burn"}],
        [{"row": 0, "decision": "accept"}],
        [{"row": 0, "decision": "other", "label": ""}],
        [{"row": 0, "decision": "keep", "label": "cat"}],
        "[" * 100_000,
    ],
)
def test_damaged_decisions_change_nothing(review: Review, body: Any) -> None:
    assert post(review, [{"row": 7, "decision": "keep"}])[0] == 204
    before = review.path.read_bytes()
    assert post(review, body)[0] == 400
    assert review.path.read_bytes() == before


def test_a_full_disk_is_said(review: Review, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Decisions, path: Path) -> Path:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Decisions, "write", full)
    status, words = post(review, [{"row": 7, "decision": "keep"}])
    assert (status, b"No space left" in words) == (500, True)


def test_other_machines_cannot_connect(review: Review) -> None:
    port = int(review.host.split(":")[1])
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in own - {"127.0.0.1"}:
        if not address.startswith("127."):
            with pytest.raises(OSError):
                socket.create_connection((address, port), timeout=5).close()
    assert review._server.socket.getsockname()[0] == "127.0.0.1"


def test_control_c_ends_it_cleanly(tmp_path: Path) -> None:
    proposal().write(tmp_path / "proposal.json")
    command = [sys.executable, "-u", "-m", "torchcurriculum.cli", "review", str(tmp_path), "--no-browser"]

    def heed() -> None:  # a suite in the background ignores Ctrl-C, and so would its children
        signal.signal(signal.SIGINT, signal.default_int_handler)

    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, preexec_fn=heed, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline()
        assert re.search(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert "0 of 60" in said
        assert process.stderr.read() == ""
        assert process.wait() == 0
