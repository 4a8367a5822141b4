"""Damaged files, many of them: `Record.load` and all that reads a record, `load_cifar_n`, and the text files of data.

The rule: what is damaged gives a whole record (or labels in range), or a `RecordError` (`ValueError`) with a sentence;
never another exception, never a warning, never a hang. A finding is printed with the bytes that make it, once for each
place in the code.

    python benchmarks/fuzz_readers.py [--seconds 60 | --count 20000] [--seed 0] [--target record|labels|files]
    python benchmarks/fuzz_readers.py --atheris --target record -- -max_total_time=60     (pip install atheris)

With atheris, the mutations follow the branches that the readers take; without it, they are drawn at random. A record's
folder is packed into one string of bytes, each file with its name and length, so that both can damage any part of it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import numpy as np
import torch

from torchcurriculum import Record, theory
from torchcurriculum.audit import audit
from torchcurriculum.clean.tables import read_table
from torchcurriculum.lab.data import cifar_n, load_glue, load_tudataset, load_webvision
from torchcurriculum.record import RecordError
from torchcurriculum.report import write_report

TARGETS = ["record", "labels", "files"]
ROWS = 9
FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-readers-"))
INTERESTING = [b"\0", b"\xff", b"1e999", b"NaN", b"-1", b"null", b"[]", b"{}", b'"x"', b"9" * 30, b"\n", b"PK\x03\x04"]


COUNTS: Counter[str] = Counter()  # what came through


class Finding(Exception):
    """Something that must not happen."""


# ---------------------------------------------------------------------- a record's folder as bytes


def pack(files: dict[str, bytes]) -> bytes:
    return b"".join(f"{name}:{len(content)}\n".encode() + content for name, content in files.items())


def unpack(packed: bytes, folder: Path) -> None:
    """Writes what can be made out; names that would leave the folder are left out."""
    for path in folder.iterdir():
        path.unlink()
    while b"\n" in packed:
        head, packed = packed.split(b"\n", 1)
        name, _, size = head.partition(b":")
        length = int(size) if size.isdigit() and len(size) < 8 else 0
        word = name.decode("ascii", "ignore")
        if word and word.replace(".", "").replace("_", "").isalnum() and len(word) < 60 and word.strip("."):
            (folder / word).write_bytes(packed[:length])
        packed = packed[length:]


def whole_record() -> bytes:
    """A real record of E-weighting, so that the theory, too, has something to read."""
    folder = FOLDER / "whole"
    record = Record(ROWS, {"q": 2, "method": "APW"}, folder)
    record.set_array("labels", np.arange(ROWS) % 3)
    record.set_array("clean", np.arange(ROWS) % 2)
    weights = np.full(ROWS, 1 / ROWS)
    for epoch in range(1, 5):
        easy = np.arange(ROWS) < 2 * epoch
        rho = float(np.clip(weights[~easy].sum(), 1e-4, 1 - 1e-4))
        alpha = math.log((1 - rho) / rho) / 2
        raw = weights * np.exp(np.where(easy, -alpha, alpha))
        weights = raw / raw.sum()
        row = {"epoch": epoch, "rho": rho, "alpha": alpha, "z": float(raw.sum()), "threshold": 1.0, "eprop": 0.5}
        row |= {"phase": "early" if rho > 0.5 else "later", "valid_acc": 0.5, "test_acc": 0.6, "test_eprop": 0.4}
        row["weight_quantiles"] = [float(ROWS * w) for w in np.quantile(weights, (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1))]
        record.append(row, losses=np.where(easy, 0.5, 2.0), easy=easy)
    return pack({path.name: path.read_bytes() for path in sorted(folder.iterdir())})


def whole_labels() -> bytes:
    cifar_n.ROWS = ROWS
    buffer = io.BytesIO()
    names = cifar_n.CLASSES["CIFAR-100N"]
    torch.save({name: np.arange(ROWS) if "coarse" not in name else list(range(ROWS)) for name in names}, buffer)
    return buffer.getvalue()


def whole_files() -> bytes:
    """Two graphs, three pairs of sentences, ten rows of numbers and four images of WebVision, as their text files."""
    files = {
        "NCI1_A.txt": "1, 2\n2, 1\n3, 4\n4, 3\n",
        "NCI1_graph_indicator.txt": "1\n1\n2\n2\n",
        "NCI1_graph_labels.txt": "0\n1\n",
        "NCI1_node_labels.txt": "0\n2\n0\n1\n",
        "train.tsv": "index\tsentence1\tsentence2\tlabel\n0\ta b\tc\tentailment\n1\td\te\tnot_entailment\n",
        "dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tf\tg\tentailment\n",
        "x.csv": "a,b,label\n" + "1,2.5,x\n-3,4e2,y\n" * 6,
        "train_filelist_google.txt": "google/q0001/a.jpg 0\ngoogle/q0050/b.jpg 49\n",
        "val_filelist.txt": "val000001.jpg 0\nval000002.jpg 49\n",
    }
    for name in ("google/q0001/a.jpg", "google/q0050/b.jpg", "val_images_256/val000001.jpg"):
        (FOLDER / "webvision" / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / "webvision" / name).touch()
    return pack({name: text.encode() for name, text in files.items()})


# ---------------------------------------------------------------------- the targets


def page(record: Record) -> None:
    write_report({"apw-e": [record], "vanilla": [record, record]}, FOLDER / "page.html", title="x")


def read_record(packed: bytes, report: bool = False) -> None:
    folder = FOLDER / "one"
    folder.mkdir(exist_ok=True)
    unpack(packed, folder)
    try:
        record = Record.load(folder)
    except RecordError:
        return
    COUNTS["loaded"] += 1
    if any(len(rows) < len(record.epochs) for rows in record._histories.values()):
        raise Finding("a history ends before its epochs")
    for use in (theory.summary, theory.weights, audit, *([page] if report else [])):
        with contextlib.suppress(RecordError):
            use(record)
            COUNTS[use.__name__] += 1


def read_labels(content: bytes) -> None:
    path = FOLDER / "labels.pt"
    path.write_bytes(content)
    try:
        labels = cifar_n.load_cifar_n(path)
    except ValueError as error:
        if not str(error).startswith(str(path)):
            raise Finding(f"a message without the file's name: {error}") from error
        return
    COUNTS["loaded"] += 1
    if any(len(values) != ROWS or values.min() < 0 or values.max() > 99 for values in labels.values()):
        raise Finding("labels out of range")


def read_files(packed: bytes) -> None:
    folder, web = FOLDER / "files", FOLDER / "webvision"
    for place in (folder, web / "info"):
        place.mkdir(parents=True, exist_ok=True)
    unpack(packed, folder)
    for name in ("train_filelist_google.txt", "val_filelist.txt"):
        (web / "info" / name).write_bytes((folder / name).read_bytes() if (folder / name).exists() else b"")
    readers: dict[str, Callable[[], object]] = {
        "graphs": lambda: load_tudataset(folder).batch(torch.arange(1)),
        "pairs": lambda: load_glue(folder),
        "numbers": lambda: read_table(folder / "x.csv"),
        "images": lambda: load_webvision(web, mini=True),
    }
    for name, use in readers.items():
        try:
            use()
            COUNTS[name] += 1
        except (ValueError, FileNotFoundError) as error:
            if str(FOLDER) not in str(error):
                raise Finding(f"a message without the file's name: {error}") from error


# ---------------------------------------------------------------------- the plain loop


def mutate(content: bytes, rng: random.Random) -> bytes:
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        place, size = rng.randrange(len(made) + 1), rng.choice((1, 1, 2, 4, 16, 200))
        how = rng.randrange(6)
        if how == 0 and place < len(made):
            made[place] ^= 1 << rng.randrange(8)
        elif how == 1:
            made[place : place + size] = rng.randbytes(size)
        elif how == 2:
            del made[place : place + size]
        elif how == 3:
            made[place : place + rng.choice((0, len(made)))] = b""
        elif how == 4:
            made[place:place] = rng.choice(INTERESTING)
        else:
            start = rng.randrange(len(made) + 1)
            made[place:place] = made[start : start + size]
    return bytes(made)


def values(packed: bytes, rng: random.Random) -> bytes:
    """Damage that stays JSON: a number of a line becomes another value."""
    odd = [b"null", b"true", b'"x"', b"[]", b"{}", b"1e999", b"-1e999", b"NaN", b"-1", b"0", b"1e308", b"1e-320", b"2"]
    odd += [b"9" * 400, b"1e40", b"1e-50", b"0.5", b"[1, 2]", b"[1, 2, 3, 4, 5, 6, 1e300]", b"[" * 2000 + b"]" * 2000]
    parts = packed.split(b": ")
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(1, len(parts))
        old = parts[place]
        if b"[" in old[:1]:
            end = old.index(b"]") + 1 if b"]" in old else 1
        else:
            end = min((old.index(c) for c in (b",", b"}", b"\n") if c in old), default=len(old))
        parts[place] = rng.choice(odd) + old[end:]
    return b": ".join(parts)


def relength(packed: bytes, change: Callable[[bytes], bytes], rng: random.Random) -> bytes:
    """Damages one file of a packed folder and states its new length."""
    files, rest = {}, packed
    while rest:
        head, rest = rest.split(b"\n", 1)
        name, size = head.decode().split(":")
        files[name], rest = rest[: int(size)], rest[int(size) :]
    name = rng.choice(sorted(files))
    if rng.random() < 0.05:
        del files[name]
    else:
        files[name] = change(files[name])
    return pack(files)


def loop(target: str, seconds: float, count: float, seed: int) -> int:
    """Returns the number of places with findings."""
    rng, found, runs, begun = random.Random(seed), dict[str, bytes](), 0, time.monotonic()
    record, labels, files = whole_record(), whole_labels(), whole_files()
    while time.monotonic() < begun + seconds and runs < count:
        runs += 1
        if target == "labels":
            content, read = mutate(labels, rng), read_labels
        elif target == "files":
            content, read = relength(files, lambda file: mutate(file, rng), rng), read_files
        else:
            how = rng.randrange(3)
            content = (
                relength(record, lambda file: values(file, rng) if b": " in file else mutate(file, rng), rng)
                if how == 0
                else relength(record, lambda file: mutate(file, rng), rng)
                if how == 1
                else mutate(record, rng)
            )
            report = runs % 20 == 0

            def read(packed: bytes, report: bool = report) -> None:
                read_record(packed, report)

        started = time.process_time()  # a busy machine is not a finding
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                read(content)
            if time.process_time() - started > 10:
                raise Finding("it took more than ten seconds")
        except Exception as error:
            where = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)][-3:]
            key = f"{type(error).__name__} at {' > '.join(where)}"
            if key not in found:
                found[key] = content
                print(f"FINDING {key}: {str(error)[:100]}\n  {content!r:.3000}", flush=True)
    through = ", ".join(f"{word} {count}" for word, count in COUNTS.items())
    took = f"{runs} damaged inputs in {time.monotonic() - begun:.0f} s, seed {seed}"
    print(f"{target}: {took}: {len(found)} findings ({through})", flush=True)
    COUNTS.clear()
    return len(found)


def with_atheris(target: str, rest: list[str]) -> None:
    import atheris

    names = ("record.disk", "audit.ranking", "theory.quantities", "theory.theorems", "data.cifar_n")
    names += ("data.text_files", "data.tudataset", "data.glue", "data.webvision")
    for name in names:
        module = sys.modules[f"torchcurriculum.{name}"]
        for thing in list(vars(module).values()):
            if isinstance(thing, FunctionType) and thing.__module__ == module.__name__:
                thing.__code__ = atheris.instrument_func(thing).__code__  # also where it is imported by name
    seeds = FOLDER / "corpus"
    seeds.mkdir()
    wholes = {"record": whole_record, "labels": whole_labels, "files": whole_files}
    (seeds / "whole").write_bytes(wholes[target]())
    readers = {"record": read_record, "labels": read_labels, "files": read_files}
    read = readers[target]
    warnings.simplefilter("error")
    atheris.Setup([sys.argv[0], str(seeds), *rest], lambda content: read(content))
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="for each target (default: 60, or no limit with --count)")
    parser.add_argument("--count", type=int, help="damaged inputs for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--atheris", action="store_true")
    parser.add_argument("rest", nargs="*", help="options for libFuzzer, after --")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.atheris:
        with_atheris(options.target or "record", options.rest)
        return
    targets = [options.target] if options.target else TARGETS
    seconds = options.seconds or (60 if options.count is None else math.inf)
    count = math.inf if options.count is None else options.count
    sys.exit(min(1, sum([loop(target, seconds, count, options.seed) for target in targets])))


if __name__ == "__main__":
    main()
