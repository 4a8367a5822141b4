"""The review page: one self-contained HTML file that shows a proposal and collects decisions."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from dataclasses import asdict
from html import escape
from importlib import resources
from pathlib import Path

from ..record.files import overwrite
from ..report.html import STYLE
from .decisions import Decisions
from .proposal import Proposal

__all__ = ["page", "write_page"]

MATRIX = 12  # classes in the matrix
PAIRS = 3  # in the answer


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


CSS, SCRIPT = STYLE + _part("page.css"), _part("page.js")


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


POLICY = (
    f"default-src 'none'; img-src data:; style-src {_hash(CSS)}; script-src {_hash(SCRIPT)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)


def write_page(proposal: Proposal, path: str | Path) -> Path:
    """Writes the page for a proposal; an existing file is overwritten. The browser stores the decisions.

    Example:
        >>> import tempfile
        >>> from torchcurriculum.clean import Source, Suspect
        >>> source = Source("/data/pets.csv", "table", "00", label="kind", encoding="utf-8", separator=",")
        >>> proposal = Proposal(source, ["cat", "dog"], 100, [Suspect(7, "cat", "dog", 0.02, sure=True)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     "1 of 100 labels looks wrong" in write_page(proposal, f"{folder}/review.html").read_text()
        True
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with overwrite(path, errors="replace") as file:
        file.write(page(proposal))
    return path


def page(proposal: Proposal, decisions: Decisions | None = None, save: str = "") -> str:
    """The page as HTML.

    Args:
        proposal: What it shows.
        decisions: Earlier ones, if a server stores them.
        save: Where the server stores them; empty for a page without a server.
    """
    shown = [
        {**asdict(row), "show": {key: value for key, value in row.show.items() if value is not None}}
        for row in proposal.rows
    ]
    known = set(proposal.classes)
    others = sorted({label for row in proposal.rows for label in (row.given, row.suggested) if label} - known)
    classes = [*proposal.classes, *others]
    taken = [] if decisions is None else decisions.rows
    data = {
        "key": proposal.key,
        "source": asdict(proposal.source),
        "classes": classes,
        "rows": shown,
        "save": save,
        "decisions": [
            [one.row, {"decision": one.decision, **({} if one.label is None else {"label": one.label})}]
            for one in taken
        ],
    }
    title = f"Review: {Path(proposal.source.path).name}"
    body = _answer(proposal) + _matrix(proposal, classes) + (_review(save) if proposal.rows else "")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<title>{escape(title)}</title>
<style>{CSS}</style>
</head>
<body>
<a class="skip" href="#review">Skip to the labels</a>
<main>
{body}
</main>
<footer>Made by torchcurriculum from {escape(proposal.source.path)}. {escape(proposal.method)}</footer>
<datalist id="classes"></datalist>
<script type="application/json" id="data">{_json(data)}</script>
{f"<script>{SCRIPT}</script>" if proposal.rows else ""}
</body>
</html>
"""


def _json(data: object) -> str:
    """JSON that is safe inside a page: no text in it can close its element."""
    text = json.dumps(data, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _answer(proposal: Proposal) -> str:
    """The number of labels that look wrong, which ones, and how sure that is."""
    called, total, share = proposal.called, proposal.total, proposal.share
    if proposal.health:
        head = "These labels could not be judged"
    elif not called:
        head = f"None of {total:,} labels is called wrong"
    else:
        head = f"{len(called):,} of {total:,} labels {'looks' if len(called) == 1 else 'look'} wrong"
    parts = []
    if proposal.health:
        reasons = "".join(f"<li>{escape(sentence)}</li>" for sentence in proposal.health)
        parts.append(f'<div class="health"><p>Nothing is called wrong, because:</p><ul>{reasons}</ul></div>')
    if share.estimate is not None and not proposal.health:
        between = "" if share.low is None or share.high is None else f" (between {share.low:.1%} and {share.high:.1%})"
        parts.append(f"<p>About <b>{share.estimate:.1%}</b> of all labels are wrong{between}.</p>")
    if called and not proposal.health:
        sure = sum(row.sure for row in called)
        wrong = sum(1 - row.quality for row in called)
        words = f"By their probabilities, about {wrong:,.0f} of these {len(called):,} are wrong"
        certain = f"; {sure:,} of them are sure enough to be changed without review" if sure else ""
        parts.append(f"<p>{words}{certain}.</p>")
        pairs = Counter((row.given, row.suggested) for row in called if row.suggested not in (None, row.given))
        often = [f"<b>{escape(given)}</b> that fits better as <b>{escape(str(new))}</b> ({count:,})"
                 for (given, new), count in pairs.most_common(PAIRS)]  # fmt: skip
        if often:
            parts.append(f"<p>Most often: {'; '.join(often)}.</p>")
    if check := proposal.to_check():
        parts.append(f"<p>{escape(check)}</p>")
    parts += [f'<p class="missing">{escape(note)}</p>' for note in proposal.notes]
    return f"<header><h1>{escape(head)}</h1>\n{''.join(parts)}</header>\n"


def _matrix(proposal: Proposal, classes: list[str]) -> str:
    """Given labels against suggested ones; only the most frequent classes if there are many."""
    pairs = Counter((row.given, row.suggested) for row in proposal.rows if row.suggested is not None)
    if not pairs:
        return ""
    counts = Counter[str]()
    for (given, new), count in pairs.items():
        counts.update({given: count, str(new): count})
    most = {label for label, _ in counts.most_common(MATRIX)}
    place = {label: number for number, label in enumerate(classes)}
    used = sorted(most, key=place.__getitem__)
    largest = max(pairs.values())
    head = "".join(f'<th scope="col" class="number" title="{escape(label)}">{escape(label)}</th>' for label in used)
    lines = []
    for given in used:
        cells = []
        for new in used:
            count = pairs[given, new]
            words = f"{count} given {given} and suggested {new}"
            ids = f'data-given="{place[given]}" data-suggested="{place[new]}" aria-pressed="false"'
            shade = " heavy" if count * 2 > largest else ""
            button = f'<button type="button" class="cell{shade}" {ids} aria-label="{escape(words)}">{count:,}</button>'
            cells.append(f"<td>{button if count else ''}</td>")
        row = f'<th scope="row" title="{escape(given)}">{escape(given)}</th>'
        lines.append(f"<tr>{row}{''.join(cells)}</tr>")
    left = sum(count for (given, new), count in pairs.items() if given not in most or new not in most)
    note = f" {left:,} of rarer classes are not in it; use the filters below." if left else ""
    return f"""<section aria-labelledby="which"><h2 id="which">Which labels</h2>
<div id="matrix" class="scroll" tabindex="0" role="region" aria-label="Given and suggested labels">
<table><caption>Rows: the given label. Columns: the suggested one. Click a number to see these rows.{note}</caption>
<thead><tr><td></td>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div></section>
"""


def _review(save: str) -> str:
    after = "" if save else " Then: <code>curriculum fix decisions.json --out FIXED</code>."
    then = f"Then: <code>curriculum fix {escape(save)} --out FIXED</code>." if save else ""
    return f"""<section id="review" aria-labelledby="decide"><h2 id="decide">Decide</h2>
<noscript><p class="health">This page needs JavaScript to show the labels.</p></noscript>
<p class="keys">Keys: <kbd>a</kbd> accept <kbd>k</kbd> keep <kbd>d</kbd> drop <kbd>o</kbd> another label
<kbd>u</kbd> undo <kbd>j</kbd> or <kbd>→</kbd> next <kbd>i</kbd> or <kbd>←</kbd> back <kbd>n</kbd> next page
<kbd>p</kbd> page before</p>
<div class="bar">
<label>Show <select id="state"><option value="">all</option><option value="open">not decided</option>
<option value="sure">sure</option><option value="called">called wrong</option>
<option value="check">to check</option><option value="accept">accepted</option><option value="keep">kept</option>
<option value="drop">dropped</option><option value="other">another label</option></select></label>
<label>Given <select id="given"><option value="">any</option></select></label>
<label>Suggested <select id="suggested"><option value="">any</option></select></label>
<label>Find <input id="find" type="search" autocomplete="off"></label>
<label>Order <select id="order"><option value="suspicious">most suspicious first</option>
<option value="certain">surest suggestion first</option><option value="unsure">closest calls first</option>
<option value="data">as in the data</option></select></label>
<button type="button" id="clear">Clear filters</button>
</div>
<div class="bar status">
<progress id="progress" value="0" max="1" aria-label="Decided"></progress> <span id="count" role="status"></span>
<button type="button" id="undo">Undo</button>
<button type="button" id="json" aria-label="Download decisions">Download</button>
</div>
<p class="small"><span id="saved"></span>{after} {then} <button type="button" id="csv">Download as CSV</button></p>
<ol id="cards"></ol>
<div class="bar"><button type="button" id="before">Page before</button><span id="where" role="status"></span>
<button type="button" id="after">Next page</button><button type="button" id="all"></button></div>
</section>
"""
