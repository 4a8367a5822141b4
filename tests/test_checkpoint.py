"""A saved state comes back exactly, or is refused by a sentence while the one before it is taken."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import pickletools
import random
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext as nothing
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import torchcurriculum.checkpoint.disk as module
import torchcurriculum.record.disk as record_module
import torchcurriculum.record.files as files_module
from torchcurriculum import APW, Arrays, Checkpoint, Curriculum, GracefulStop, Record, Vanilla
from torchcurriculum.checkpoint.tree import decode, encode

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint32]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]


def same(a: Any, b: Any) -> bool:
    """Equal in value, type, dtype and every bit; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        bits = [tensor.contiguous().cpu().reshape(-1).view(torch.uint8) for tensor in (a, b) if tensor.numel()]
        return a.dtype == b.dtype and a.shape == b.shape and (not bits or torch.equal(*bits))
    if isinstance(a, dict):
        return (
            list(a) == list(b)
            and all(type(x) is type(y) for x, y in zip(a, b, strict=True))
            and all(same(a[key], b[key]) for key in a)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return repr(a) == repr(b)


def there_and_back(folder: Path, value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"gone": 1}
    assert Checkpoint(folder).save(1, value=value)
    assert Checkpoint(folder).load(value=found) == 1
    return found


def two_states(folder: Path) -> None:
    checkpoint = Checkpoint(folder)
    assert checkpoint.save(1, value={"x": torch.arange(50.0), "step": 1})
    assert checkpoint.save(2, value={"x": torch.arange(50.0) + 1, "step": 2})


# ---------------------------------------------------------------- exactness


def test_every_type_of_tensor_comes_back_bit_for_bit(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(0, 256, (2, 3, 16), generator=generator, dtype=torch.uint8)
    value = {str(dtype): (raw % 2).bool() if dtype == torch.bool else raw.view(dtype) for dtype in DTYPES}
    value |= {"scalar": torch.tensor(0.1), "empty": torch.zeros(0, 3), "view": torch.arange(12).view(3, 4).T[1:]}
    value |= {"tied": value["scalar"], "slice": raw[0], "parameter": nn.Parameter(torch.ones(2)).data}
    value |= {"channels_last": torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)}
    assert same(there_and_back(tmp_path, value), value)


def test_python_values_come_back_with_their_types(tmp_path: Path) -> None:
    value = {
        "none": None,
        "bools": [True, False],
        "numbers": (0, -1, 2**200, 0.1, -0.0, 5e-324, 1e308, math.inf, -math.inf, math.nan),
        "strings": {"$tensor": "x", "": "", "ümlaut\n": "\x00'\"\\", "a/b": torch.ones(1)},
        "a": {"b": torch.zeros(1)},
        "keys": {0: "int", "0": "str", True: "bool", (1, "x"): "tuple", None: "none", 1.5: "float"},
        "nested": [[], {}, (), [({"deep": [torch.ones(2), None]},)]],
        "counter": Counter({3: 2, 7: 1}),
        "array": np.arange(6, dtype=np.uint32).reshape(2, 3),
        "generators": {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": np.random.get_state()},
        "generator": np.random.default_rng(3).bit_generator.state,
    }
    value["keys"][True] = "bool"
    assert same(there_and_back(tmp_path, value), value)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
KEYS = st.text() | st.integers() | st.booleans() | st.tuples(st.integers(), st.text())
TREES = st.recursive(
    SCALARS | st.lists(st.floats(width=32), max_size=3).map(torch.tensor),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)


@given(TREES)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_tree_survives_json(value: Any) -> None:
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(encode(value, "value", tensors), allow_nan=False)
    assert same(decode(json.loads(text), tensors), value)


def train(optimizer: torch.optim.Optimizer, model: nn.Module, steps: int = 3) -> None:
    generator = torch.Generator().manual_seed(steps)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(5, 3, generator=generator)).square().mean().backward()
        optimizer.step()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def optimizers() -> dict[str, Callable[[nn.Module], torch.optim.Optimizer]]:
    def groups(model: Any) -> list[dict[str, Any]]:
        first = {
            "params": list(model[0].parameters()),
            "lr": 0.3,
            "weight_decay": 0.0,
            "nesterov": True,
            "note": "first",
        }
        return [first, {"params": list(model[2].parameters()), "extra": (1, None, math.inf)}]

    return {
        "sgd": lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
        "groups": lambda model: torch.optim.SGD(groups(model), 0.1, momentum=0.9),
        "adam": lambda model: torch.optim.Adam(model.parameters(), 0.1, amsgrad=True),
        "adamw": lambda model: torch.optim.AdamW(
            model.parameters(), torch.tensor(0.1), betas=(0.8, 0.99), foreach=False
        ),
        "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), 0.1, centered=True),
        "adagrad": lambda model: torch.optim.Adagrad(model.parameters(), 0.1),
        "lbfgs": lambda model: torch.optim.LBFGS(model.parameters(), 0.1),
    }


@pytest.mark.parametrize("name", optimizers())
def test_optimizers_come_back_and_go_on_alike(name: str, tmp_path: Path) -> None:
    make = optimizers()[name]
    model, other = net(), net()
    optimizer, another = make(model), make(other)
    if name == "lbfgs":
        loss = lambda: model(torch.ones(4, 3) * torch.arange(4.0)[:, None]).square().mean()  # noqa: E731
        optimizer.step(lambda: (optimizer.zero_grad(), value := loss(), value.backward())[1])  # type: ignore[func-returns-value]
    else:
        train(optimizer, model)
    Checkpoint(tmp_path).save(3, model=model, optimizer=optimizer)
    assert Checkpoint(tmp_path).load(model=other, optimizer=another) == 3
    assert same(dict(model.state_dict()), dict(other.state_dict()))
    assert same(optimizer.state_dict(), another.state_dict())
    assert all(type(key) is int for key in another.state_dict()["state"])
    if name != "lbfgs":
        train(optimizer, model)
        train(another, other)
        assert same(dict(model.state_dict()), dict(other.state_dict()))


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9, 1e-6),
    "milestones": lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 4]),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=20),
    "plateau": lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1),
    "warm-up": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
            torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        ],
        milestones=[3],
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_come_back_and_go_on_alike(name: str, tmp_path: Path) -> None:
    def step(optimizer: torch.optim.Optimizer, schedule: Any, number: int) -> list[float]:
        optimizer.step()
        schedule.step(*([1.0 + number] if name == "plateau" else []))
        return [group["lr"] for group in optimizer.param_groups]

    pairs = []
    for _ in range(2):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1, momentum=0.9)
        pairs.append((optimizer, SCHEDULES[name](optimizer)))
    for number in range(4):
        step(*pairs[0], number)
    Checkpoint(tmp_path).save(4, optimizer=pairs[0][0], schedule=pairs[0][1])
    Checkpoint(tmp_path).load(optimizer=pairs[1][0], schedule=pairs[1][1])
    assert same(pairs[0][1].state_dict(), pairs[1][1].state_dict())
    assert [step(*pairs[0], k) for k in range(4)] == [step(*pairs[1], k) for k in range(4)]


def test_scalers_modules_and_generators_come_back(tmp_path: Path) -> None:
    scaler, other = (torch.amp.GradScaler("cpu", init_scale=scale) for scale in (512.0, 2.0))
    scaler.scale(torch.ones(1))
    generators = {"torch": torch.get_rng_state()}
    expected = torch.rand(3)
    Checkpoint(tmp_path).save(0, scaler=scaler, generators=generators, model=net())
    found: dict[str, Any] = {}
    assert Checkpoint(tmp_path).load(scaler=other, generators=found) == 0
    assert scaler.state_dict() == other.state_dict()
    torch.set_rng_state(found["torch"])
    assert torch.equal(torch.rand(3), expected)
    # The versions that modules keep beside their tensors are part of their state.
    tensors: dict[str, torch.Tensor] = {}
    state = net().state_dict()
    back = decode(json.loads(json.dumps(encode(state, "model", tensors))), tensors)
    assert dict(back._metadata) == dict(state._metadata)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("options", [{}, {"fused": True}, {"capturable": True}], ids=str)
def test_on_an_accelerator_a_state_goes_there_and_back(options: dict[str, bool], tmp_path: Path) -> None:
    runs = []
    for _ in range(2):
        model = net().cuda()
        runs.append((model, torch.optim.Adam(model.parameters(), 0.1, **options)))
    for (model, optimizer), steps in zip(runs, (3, 0), strict=True):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(5, 3, device="cuda")).square().mean().backward()
            optimizer.step()
    Checkpoint(tmp_path).save(3, model=runs[0][0], optimizer=runs[0][1])
    assert Checkpoint(tmp_path).load(model=runs[1][0], optimizer=runs[1][1]) == 3
    assert same(dict(runs[0][0].state_dict()), dict(runs[1][0].state_dict()))
    assert same(runs[0][1].state_dict(), runs[1][1].state_dict())
    places = [[v.device for state in run[1].state.values() for v in state.values()] for run in runs]
    assert places[0] == places[1]


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(TypeError, match="part/rules/0 is a function, but a state can hold only tensors"):
        checkpoint.save(1, part={"rules": [net]})
    with pytest.raises(TypeError, match="part/x is a sparse"):
        checkpoint.save(1, part={"x": torch.ones(2).to_sparse()})
    with pytest.raises(ValueError, match="whole number, at least 0, got -1"):
        checkpoint.save(-1)
    with pytest.raises(ValueError, match="keep must be a whole number, at least 1, got 0"):
        Checkpoint(tmp_path, keep=0)
    assert not list(tmp_path.iterdir())


def test_nothing_written_is_a_pickle(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    train(optimizer, model)
    Checkpoint(tmp_path).save(1, model=model, optimizer=optimizer, extra={"a": (1, torch.ones(3))})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["state.json", "tensors.safetensors"]
    for path in files:
        data = path.read_bytes()
        assert not data.startswith((b"\x80", b"PK"))
        with pytest.raises(ValueError):
            list(pickletools.genops(data))
    code = (
        "import sys, pickle, torch, torchcurriculum as t; pickle.load = pickle.loads = pickle.Unpickler = None;"
        "torch.load = None; x = {}; print(t.Checkpoint(sys.argv[1]).load(extra=x), len(x['a'][1]))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["1", "3"], done.stderr


# ---------------------------------------------------------------- which state is taken


def test_old_states_go_and_the_newest_is_taken(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "not" / "yet", keep=3)
    assert checkpoint.load() is None
    for number in (0, 5, 9, 123_456_789, 123_456_790):
        assert checkpoint.save(number, value={"number": number})
    names = sorted(path.name for path in checkpoint.folder.iterdir())
    assert names == ["state-00000009", "state-123456789", "state-123456790"]
    found: dict[str, int] = {}
    assert checkpoint.load(value=found) == 123_456_790
    assert found == {"number": 123_456_790}


def test_the_same_number_replaces_and_leftovers_do_no_harm(tmp_path: Path) -> None:
    two_states(tmp_path)
    for name in ("state-00000003.part", "state-00000002.part", "state-x", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tensors.safetensors").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("x")
    checkpoint, found = Checkpoint(tmp_path), {}
    assert checkpoint.load(value=found) == 2
    assert checkpoint.save(2, value={"again": True})
    assert Checkpoint(tmp_path).load(value=found) == 2
    assert found == {"again": True}
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["elsewhere", "notes.txt", "state-00000001", "state-00000002", "state-x"]


def test_a_replacement_that_was_killed_between_two_renames_leaves_the_old_state(tmp_path: Path) -> None:
    two_states(tmp_path)
    (tmp_path / "state-00000002").rename(tmp_path / "state-00000002.old")
    found: dict[str, Any] = {}
    assert Checkpoint(tmp_path).load(value=found) == 2
    assert found["step"] == 2


def test_a_run_that_forgot_to_load_is_not_allowed_to_begin_anew(tmp_path: Path) -> None:
    two_states(tmp_path)
    with pytest.raises(ValueError, match=r"holds state 2 of an earlier run, but this run is at 1\. Call load before"):
        Checkpoint(tmp_path).save(1, value={})
    assert Checkpoint(tmp_path).load() == 2


def test_parts_that_do_not_fit_are_named(tmp_path: Path) -> None:
    two_states(tmp_path)
    with pytest.raises(ValueError, match="state 2 in .* holds value; it has no model, schedule"):
        Checkpoint(tmp_path).load(model=net(), value={}, schedule={})
    with pytest.raises(TypeError, match="load needs dicts or objects .*; value is a int"):
        Checkpoint(tmp_path).load(value=3)


# ---------------------------------------------------------------- damage


def refused(folder: Path, message: str, taken: int | None = 1) -> None:
    """Loading warns of the newest state in one sentence, touches nothing of it, and takes the one before."""
    found: dict[str, Any] = {"untouched": True}
    with pytest.warns(UserWarning, match=message) as caught:
        assert Checkpoint(folder).load(value=found) == taken
    assert len(caught) == 1
    assert str(folder / "state-00000002") in str(caught[0].message)
    assert found.get("step") == taken
    assert ("untouched" in found) == (taken is None)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A state.json as somebody might forge it, with a checksum that is right."""
    path = folder / "state-00000002" / "state.json"
    head = json.loads(path.read_text())
    change(head)
    text = json.dumps({**head, "sha256": module.NO_DIGEST})
    path.write_text(text.replace(module.NO_DIGEST, hashlib.sha256(text.encode()).hexdigest(), 1))


@pytest.mark.parametrize("name", ["state.json", "tensors.safetensors"])
def test_files_cut_anywhere_are_refused(name: str, tmp_path: Path) -> None:
    two_states(tmp_path)
    path = tmp_path / "state-00000002" / name
    whole = path.read_bytes()
    for size in [0, 1, 7, 8, 9, *range(10, len(whole), max(1, len(whole) // 25)), len(whole) - 1]:
        path.write_bytes(whole[:size])
        words = "is empty" if size == 0 else "truncated"
        refused(tmp_path, rf"{name} .*{words}.*; falling back to the state before it$")
    path.write_bytes(whole + b"\0")
    refused(tmp_path, f"{name} is (too long|truncated, damaged or not JSON)")
    path.unlink()
    refused(tmp_path, f"{name} is missing")


@pytest.mark.parametrize("name", ["state.json", "tensors.safetensors"])
def test_every_flipped_bit_is_found(name: str, tmp_path: Path) -> None:
    two_states(tmp_path)
    path = tmp_path / "state-00000002" / name
    whole = path.read_bytes()
    # Every byte of the file: length, header and data of the tensors; format, checksums, structure and braces of JSON.
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found: dict[str, Any] = {}
            assert Checkpoint(tmp_path).load(value=found) == 1, place
        assert len(caught) == 1
        assert str(path) in str(caught[0].message)
        assert found["step"] == 1
    path.write_bytes(whole)
    assert Checkpoint(tmp_path).load() == 2


def test_foreign_and_newer_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    two_states(tmp_path)
    path = tmp_path / "state-00000002" / "state.json"
    whole = path.read_text()
    for text in ("[]", "null", "3", '{"kind": "other"}', "{}"):
        path.write_text(text)
        refused(tmp_path, "state.json is not a saved state of this library")
    for text in ("<html>", "\x80\x04", "[" * 100_000):
        path.write_text(text)
        refused(tmp_path, "state.json is truncated, damaged or not JSON")
    path.write_text(whole)
    rewrite(tmp_path, lambda head: head.update(format=2))
    message = "state.json has format 2, and this version reads format 1; a newer version wrote it"
    refused(tmp_path, message)
    newer = path.read_bytes()
    checkpoint = Checkpoint(tmp_path, keep=1)
    with pytest.warns(UserWarning, match=message):
        assert checkpoint.load() == 1
    assert checkpoint.save(1, value={"step": 1})
    assert path.read_bytes() == newer
    assert checkpoint.save(3, value={"step": 3})
    assert [held.name for held in tmp_path.iterdir()] == ["state-00000003"]


def test_forged_structures_are_refused_without_harm(tmp_path: Path) -> None:
    def part(value: Any) -> Callable[[dict[str, Any]], Any]:
        return lambda head: head["parts"].update(value=value)

    forged: list[Callable[[dict[str, Any]], Any]] = [
        part({"$tensor": "value/y"}),
        part({"$tensor": {"$tensor": "value/x"}}),
        part({"$import": "os.system"}),
        part({"$tuple": 3}),
        part({"$dict": [[1]]}),
        part({"$dict": [[{"$dict": []}, 1]]}),
        part({"$float": "__import__('os')"}),
        part({"$module": [{}, 3]}),
        part({"$complex": "value/x"}),
        part({"$array": 1}),
        lambda head: head.update(parts=[]),
        lambda head: head.pop("parts"),
        lambda head: head.pop("tensors"),
        lambda head: head.update(tensors=None),
        lambda head: head["tensors"].update(bytes="many"),
        lambda head: head["tensors"].update(file="/etc/passwd"),
        lambda head: head.pop("number"),
    ]
    two_states(tmp_path)
    path = tmp_path / "state-00000002" / "state.json"
    whole = path.read_bytes()
    for change in forged:
        rewrite(tmp_path, change)
        refused(tmp_path, "is not a saved state of this library")
        path.write_bytes(whole)
    rewrite(tmp_path, lambda head: head.update(number=7))
    refused(tmp_path, "holds state 7 under another number")


def test_a_tensor_file_of_another_program_is_refused(tmp_path: Path) -> None:
    two_states(tmp_path)
    path = tmp_path / "state-00000002" / "tensors.safetensors"
    for data in (b"\x80\x04K\x01.", b"\xff" * 64, (2**60).to_bytes(8, "little") + b"{}", b"\x02" + b"\0" * 7 + b"{}"):
        path.write_bytes(data)
        digest = module.digest(path)
        rewrite(tmp_path, lambda head, d=data, s=digest: head.update(tensors={"bytes": len(d), "sha256": s}))
        refused(tmp_path, "state-00000002 is not a saved state of this library")


def test_paths_in_a_state_lead_nowhere(tmp_path: Path) -> None:
    folder, secret = tmp_path / "states", tmp_path / "secret"
    two_states(folder)
    two_states(secret)
    opened: list[str] = []
    watching = True

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and watching:
            opened.append(str(arguments[0]))

    sys.addaudithook(note)  # for good; it can only be told to look away
    there = "secret/state-00000002/tensors.safetensors"
    for trick in (str(tmp_path / there), f"../../{there}", f"../{there}"):
        rewrite(folder, lambda head, t=trick: head.update(file=t, path=t, folder=t))
        rewrite(folder, lambda head, t=trick: head["parts"].update(value={"step": 2, "x": {"$tensor": t}}))
        refused(folder, "is not a saved state of this library")
    watching = False
    assert [path for path in opened if "states/" in path]
    assert not [path for path in opened if "secret" in path]
    # Links out of the folder, in place of either file or of the whole state, are not followed.
    for name in ("tensors.safetensors", "state.json"):
        path = folder / "state-00000002" / name
        path.unlink()
        path.symlink_to(secret / "state-00000002" / name)
        refused(folder, f"{name} is not a regular file")
        path.unlink()
        path.write_bytes((secret / "state-00000002" / name).read_bytes())
    (folder / "state-00000002").rename(tmp_path / "moved")
    (folder / "state-00000002").symlink_to(secret / "state-00000002")
    refused(folder, "is not a regular file")


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    two_states(tmp_path)
    path = tmp_path / "state-00000002" / "state.json"
    path.unlink()
    os.mkfifo(path)
    refused(tmp_path, "is not a regular file")


def test_nothing_is_loaded_before_everything_is_verified(tmp_path: Path) -> None:
    model, checkpoint = net(), Checkpoint(tmp_path)
    checkpoint.save(1, model=model, value={"step": 1})
    path = tmp_path / "state-00000001" / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    other = net()
    before = {name: value.clone() for name, value in other.state_dict().items()}
    refused_part = {"untouched": True}
    with pytest.warns(UserWarning, match="checksum does not match"):
        assert Checkpoint(tmp_path).load(model=other, value=refused_part) is None
    assert same(before, dict(other.state_dict()))
    assert refused_part == {"untouched": True}


def test_a_file_that_cannot_be_read_is_passed_over_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_states(tmp_path)

    real = Path.read_bytes

    def denied(path: Path) -> bytes:
        if "00000002" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", denied)
    checkpoint = Checkpoint(tmp_path)
    with pytest.warns(UserWarning, match=r"Permission denied: '.*state.json'; falling back to the state before it"):
        assert checkpoint.load() == 1
    monkeypatch.undo()
    checkpoint.save(1, value={})
    assert Checkpoint(tmp_path).load() == 2


# ---------------------------------------------------------------- full and forbidden disks


def not_saved(checkpoint: Checkpoint, message: str) -> None:
    """A failed save warns in one sentence, leaves no rubbish, and the states before it are as they were."""
    before = {path: path.read_bytes() for path in checkpoint.folder.rglob("*") if path.is_file()}
    with pytest.warns(UserWarning, match=message) as caught:
        assert checkpoint.save(3, value={"x": torch.ones(20_000), "step": 3}) is False
    assert len(caught) == 1
    assert "the run continues without it" in str(caught[0].message)
    assert {path: path.read_bytes() for path in checkpoint.folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["mkdir 2", "fsync 1", "fsync 2", "fsync 3", "open", "write", "rename", "save_file"])
def test_whatever_call_fails_the_training_goes_on(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_states(tmp_path)
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.load() == 2
    calls = Counter[str]()
    name, _, turn = call.partition(" ")

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            if calls[name] == int(turn or 1):
                named = [str(arguments[0])] if name in ("mkdir", "open", "rename") else []
                raise OSError(number, os.strerror(number), *named)
            return real(*arguments, **options)

        return instead

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> int:
            self.file.write(data[: len(data) // 2])
            raise OSError(number, os.strerror(number))

    if name == "mkdir":
        monkeypatch.setattr(os, "mkdir", failing(os.mkdir))
    elif name == "open":
        monkeypatch.setattr(files_module, "open", failing(open), raising=False)
    elif name == "write":
        opened = lambda path, mode: Full(open(path, mode))  # noqa: E731, SIM115
        monkeypatch.setattr(files_module, "open", opened, raising=False)
    elif name == "save_file":
        monkeypatch.setattr(module, "save_file", failing(module.save_file))
    else:
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    not_saved(checkpoint, rf"state 3 could not be saved \(.*state-00000003.*: {os.strerror(number)}\)")
    monkeypatch.undo()
    found: dict[str, Any] = {}
    assert Checkpoint(tmp_path).load(value=found) == 2
    assert checkpoint.save(3, value={"step": 3})
    assert Checkpoint(tmp_path).load(value=found) == 3


def fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns where other threads run; the child here takes none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_children(*works: Callable[[], None]) -> None:
    """Runs each work in a process of its own, whose limits and rights it may give up."""
    children = []
    for work in works:
        children.append(fork())
        if children[-1] == 0:
            try:
                work()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * len(works)


def test_a_real_limit_on_file_size(tmp_path: Path) -> None:
    """The kernel itself refuses to write on: half a file is there when it does."""
    two_states(tmp_path)
    checkpoint = Checkpoint(tmp_path)
    checkpoint.load()

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        not_saved(checkpoint, "state 3 could not be saved .*tensors.safetensors.*(File too large|os error 27)")

    in_children(work)
    assert Checkpoint(tmp_path).load() == 2


def test_a_real_lack_of_permission() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        two_states(folder)
        checkpoint = Checkpoint(folder)
        checkpoint.load()
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o555)

        def work() -> None:
            if os.geteuid() == 0:
                os.setuid(65534)  # root may write everywhere; nobody may not
            not_saved(checkpoint, "state 3 could not be saved .*state-00000003.part: Permission denied")

        in_children(work)
        folder.chmod(0o755)
        assert Checkpoint(folder).load() == 2


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "states").write_text("x")
    with pytest.warns(UserWarning, match="state 1 could not be saved .*(File exists|Not a directory)"):
        assert Checkpoint(tmp_path / "states").save(1, value={}) is False


def test_a_record_on_a_full_disk_catches_up_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, start: int, data: bytes) -> None:
        with open(path, "ab") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    record = Record(5, folder=tmp_path)
    record.append({"epoch": 1}, losses=np.full(5, 1.0))
    monkeypatch.setattr(record_module, "write_at", full)
    with pytest.warns(UserWarning, match=r"record in .* could not be written \(.*No space left .*; the run continues"):
        record.append({"epoch": 2}, losses=np.full(5, 2.0))
    with pytest.warns(UserWarning, match="could not be written"):
        record.annotate(test_acc=0.5)
    monkeypatch.undo()
    assert len(Record.load(tmp_path).epochs) == 1
    record.append({"epoch": 3}, losses=np.full(5, 3.0))
    read = Record.load(tmp_path)
    assert read.epochs == record.epochs == [{"epoch": 1}, {"epoch": 2, "test_acc": 0.5}, {"epoch": 3}]
    assert read.history("losses")[:, 0].tolist() == [1.0, 2.0, 3.0]


# ---------------------------------------------------------------- the record and the state together


def shell(folder: Path, samples: bool = True) -> tuple[Curriculum, nn.Module]:
    torch.manual_seed(0)
    data = Arrays(torch.arange(33.0).reshape(11, 3).sin(), torch.arange(11) % 2)
    return Curriculum(APW(11, q=4), data, batch_size=4, record=folder, overwrite=True, samples=samples), nn.Linear(3, 2)


def go(curriculum: Curriculum, model: nn.Module, epochs: int) -> None:
    for _ in range(epochs):
        for batch in curriculum.epoch(model):
            curriculum.loss(model, batch)


def damage_row(folder: Path) -> None:
    """As a kill inside ``annotate`` leaves it: the last line is gone or half there."""
    lines = (folder / "epochs.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "epochs.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:9])


@pytest.mark.parametrize("harm", ["none", "last row", "all rows", "surplus", "lost history", "lost record"])
def test_a_record_is_whole_again_after_a_resume(harm: str, tmp_path: Path) -> None:
    curriculum, model = shell(tmp_path / "record")
    go(curriculum, model, 3)
    Checkpoint(tmp_path / "states").save(3, curriculum=curriculum)
    expected = Record.load(tmp_path / "record")
    folder = tmp_path / "record"
    if harm == "last row":
        damage_row(folder)
    elif harm == "all rows":
        (folder / "epochs.jsonl").unlink()
    elif harm == "surplus":
        go(curriculum, model, 1)
        with open(folder / "losses.float32.bin", "ab") as file:
            file.write(b"half a row")
    elif harm == "lost history":
        os.truncate(folder / "losses.float32.bin", 11 * 4 * 2)
    elif harm == "lost record":
        (folder / "record.json").write_text("{")
    again, _ = shell(folder)
    lost = harm.startswith("lost")
    with pytest.warns(UserWarning, match="per-sample values are lost") if lost else warnings.catch_warnings():
        assert Checkpoint(tmp_path / "states").load(curriculum=again) == 3
    assert Record.load(folder).epochs == expected.epochs
    go(again, model, 1)
    read = Record.load(folder)
    assert [row["epoch"] for row in read.epochs] == [1, 2, 3, 4]
    if lost:  # a history with a gap would show the values of one epoch as those of another
        assert not read.has("losses")
    else:
        assert np.array_equal(read.history("losses")[:3], expected.history("losses"))
        assert np.array_equal(read.history("easy")[:3], expected.history("easy"))
        assert len(read.history("losses")) == 4


def test_a_new_run_in_an_old_folder_takes_nothing_over(tmp_path: Path) -> None:
    go(*shell(tmp_path), 3)
    damage_row(tmp_path)
    go(*shell(tmp_path, samples=False), 1)
    read = Record.load(tmp_path)
    assert len(read.epochs) == 1
    assert not read.has("losses")


# ---------------------------------------------------------------- stopping in order


def test_signals_set_a_flag_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    for which, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with GracefulStop() as stop:
            assert not stop.requested
            assert stop.status == 0
            signal.raise_signal(which)
            assert stop.requested
            assert stop.status == status
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_second_interrupt_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt), GracefulStop() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stop.status == 130
        signal.raise_signal(signal.SIGINT)


def test_a_child_does_not_inherit_the_calm() -> None:
    with GracefulStop():
        child = fork()
        if child == 0:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_in_a_thread_the_flag_stays_down() -> None:
    import threading

    looks: list[bool] = []

    def work() -> None:
        with GracefulStop() as stop:
            looks.append(stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(600)
    assert looks == [False]


def test_a_foreign_curriculum_state_is_refused_by_name(tmp_path: Path) -> None:
    curriculum, model = shell(tmp_path / "record")
    go(curriculum, model, 1)
    Checkpoint(tmp_path / "states").save(1, curriculum=curriculum)
    other = Curriculum(Vanilla(), curriculum.train_set)
    with pytest.raises(ValueError, match="the state is of APW, and this method is Vanilla"):
        Checkpoint(tmp_path / "states").load(curriculum=other)


# ---------------------------------------------------------------- ranks


def test_ranks_write_once_load_the_same_and_stop_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(rank: int) -> None:
        options: dict[str, Any] = {"rank": rank, "world_size": 2, "timeout": timedelta(seconds=600)}
        dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", **options)
        checkpoint, found = Checkpoint(tmp_path / "states"), {}
        assert checkpoint.load(value=found) is None
        for number in (1, 2, 3):
            assert checkpoint.save(number, value={"step": number, "rank": rank})
        assert Checkpoint(tmp_path / "states").load(value=found) == 3
        assert found == {"step": 3, "rank": 0}
        if rank == 0:  # only this one cannot write; both are told
            monkeypatch.setattr(module, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.warns(UserWarning, match="full") if rank == 0 else warnings.catch_warnings():
            assert checkpoint.save(4, value={}) is False
        with GracefulStop() as stop:
            assert not stop.requested
            if rank == 1:
                signal.raise_signal(signal.SIGTERM)
            assert stop.requested
        other = checkpoint if rank == 0 else Checkpoint(tmp_path / "elsewhere")
        with (
            pytest.raises(ValueError, match="different states in .*: None here, 3 on the first") if rank else nothing()
        ):
            assert other.load() == 3
        dist.barrier()
        dist.destroy_process_group()

    in_children(lambda: work(0), lambda: work(1))
    assert sorted(path.name for path in (tmp_path / "states").iterdir()) == ["state-00000002", "state-00000003"]
