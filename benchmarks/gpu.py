"""Everything that is measured on an accelerator, in one call: one section at a time, results written after each.

    PYTHONPATH=src python3 benchmarks/gpu.py --out results/gpu.json [--section kernels scale ...] [--seconds 200]
    python benchmarks/gpu.py --out docs/results/gpu.json --page      # the same results as a page, docs/results/gpu.md

A section that fails or takes longer than its share leaves its error in the file, and the next one runs. Sections of
an earlier call stay in the file until they are run again.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import overhead
import scale
import torch
import torch.nn.functional as F
from common import Plain, Setting, Trained, With, images, save, save_page, seconds, where
from torch import Tensor, nn

from torchcurriculum import APW, Curriculum, GraphedStep, Step, fast, methods
from torchcurriculum.core import Batch, Epoch
from torchcurriculum.functional import apw as reference
from torchcurriculum.lab.models import simple_cnn

FUSED = ("apw-e", "apw-i", "apw-ei", "superloss")
STEPPED = (*FUSED, "infobatch")
Report = Callable[[Any], None]


# ---------------------------------------------------------------- kernels


def check_kernels(report: Report, _: float) -> None:
    """The fused kernels against the functions that they stand for: the largest difference, and both times at 1e8."""
    from torchcurriculum.fast import apw_epoch as fused

    found: dict[str, Any] = {"triton": getattr(fused.triton, "__version__", None)}
    for n in (1, 4095, 4097, 1_000_003, 100_000_000):
        draw = torch.Generator(device="cuda").manual_seed(n)
        logs = torch.randn(n, dtype=torch.float64, device="cuda", generator=draw) * 5
        easy = torch.rand(n, device="cuda", generator=draw) < 0.3
        mine, theirs = fused.masses(logs, easy), reference.masses(logs, easy)
        found[f"masses_relative_difference_{n}"] = float(((mine - theirs).abs() / theirs.abs().clamp_min(1)).max())
        up, down = torch.tensor([0.3, -0.7], dtype=torch.float64, device="cuda")
        a, b = fused.shift_(logs.clone(), easy, up, down), reference.shift_(logs.clone(), easy, up, down)
        found[f"shift_difference_{n}"] = float((a - b).abs().max())
        report(found)
    copied = scale.copy_bandwidth(n, "cuda", 9)
    works: dict[str, tuple[int, Callable[[], Any]]] = {
        "fused_masses": (9, lambda: fused.masses(logs, easy)),
        "torch_masses": (9, lambda: reference.masses(logs, easy)),
        "fused_shift": (17, lambda: fused.shift_(logs, easy, up, down)),
        "torch_shift": (17, lambda: reference.shift_(logs, easy, up, down)),
    }
    for name, (moved, work) in works.items():
        took = statistics.median(scale.times(work, 9, "cuda"))
        found[name] = {"ms": took * 1e3, "times_its_floor": took * copied / (moved * n)}
    found["copy_gb_s"], found["used_by_apw"] = copied / 1e9, not fast._broken
    report(found)
    found["steps_fused_minus_plain"] = {name: _fused_step(name) for name in FUSED}
    report(found)


def _fused_step(name: str) -> float:
    """The largest difference that a fused step makes to the loss, its gradient or the method's state, in float64."""
    options: dict[str, Any] = {"superloss": {"tau": 2.3}}.get(name, {})
    results = []
    for fused in (True, False):
        method = methods.build(name, 5000, 20, **options).cuda()
        draw = torch.Generator(device="cuda").manual_seed(0)
        every = torch.rand(5000, device="cuda", generator=draw) * 3
        method.plan(Epoch(2, 5000, every, lambda every=every: every))  # type: ignore[misc]
        losses = (torch.rand(3000, device="cuda", dtype=torch.float64, generator=draw) * 5).requires_grad_()
        rows = torch.randperm(5000, device="cuda", generator=draw)[:3000]
        step = Step(None, Batch(None, rows % 10, rows), torch.zeros(3000, 10, device="cuda"), losses)  # type: ignore[arg-type]
        known = fast.active(method, 1)[1]
        assert known is not None, f"{name} has no fused step"
        assert known.head is not None, f"{name} has no fused step"
        head = known.head(method, step.batch, step.logits)
        seen = torch.zeros(5000, device="cuda")
        loss = fast._kernel(losses, None, seen, rows, head) if fused else method.loss(step)
        assert loss is not None, "no kernel"
        loss.backward()
        assert losses.grad is not None
        results.append([loss.detach(), losses.grad, *method.state_dict().values()])
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(*results, strict=True) if a.numel())


def check_scale(report: Report, _: float) -> None:
    rows = []
    for n in scale.CUDA:
        rows.append(scale.one(n, "cuda", 9))
        report(rows)
        torch.cuda.empty_cache()


# ---------------------------------------------------------------- steps


def _small(name: str) -> tuple[Curriculum, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = simple_cnn().cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    lr = torch.tensor(0.01, device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr, momentum=0.9, fused=True)
    return Curriculum(methods.build(name, 2000, 20), images(2000, "cuda"), batch_size=100), net, optimizer


@contextmanager
def _waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def check_steps(report: Report, _: float) -> None:
    """No step waits for the device; a captured step gives what a plain one gives; a step compiles as one graph."""
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
    found: dict[str, Any] = {}
    for name in STEPPED:
        found[name] = {}
        for check in (_no_waiting, _as_captured, _as_one_graph):
            try:
                found[name].update(check(name))
            except Exception as error:
                found[name][check.__name__] = f"{type(error).__name__}: {error}"[:300]
                traceback.print_exc()
        report(found)
    torch.backends.cudnn.deterministic = False


def _no_waiting(name: str) -> dict[str, Any]:
    curriculum, net, optimizer = _small(name)
    steps = 0
    for epoch in range(2):
        for batch in curriculum.epoch(net):
            if epoch == 0:
                curriculum.loss(net, batch).backward()
                continue
            with _waiting_is_an_error():
                loss = curriculum.loss(net, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            steps += 1
    return {"steps_without_waiting": steps}


def _as_captured(name: str) -> dict[str, Any]:
    results, graphs = [], 0
    for captured in (True, False):
        curriculum, net, optimizer = _small(name)
        step = GraphedStep(curriculum, net, optimizer)
        step._capturable = captured
        for _ in range(3):
            for batch in curriculum.epoch(net):
                step(batch)
        tensors = [*net.state_dict().values(), *curriculum.method.state_dict().values()]
        results.append([value.double() for value in tensors])
        graphs += len(step._captured)
    worst = max(float((a - b).abs().max()) for a, b in zip(*results, strict=True) if a.numel())
    return {"captured_graphs": graphs, "captured_minus_plain": worst}


def _as_one_graph(name: str) -> dict[str, Any]:
    outputs = []
    for whole in (True, False):
        method = methods.build(name, 1000, 20).cuda()
        if isinstance(method, APW):
            method.advance(torch.linspace(0, 3, 1000, device="cuda"))

        def step(logits: Tensor, y: Tensor, index: Tensor, method: Any = method) -> Tensor:
            losses = F.cross_entropy(logits, y, reduction="none")
            return method.loss(Step(None, Batch(None, y, index), logits, losses))  # type: ignore[arg-type]

        run = torch.compile(step, fullgraph=True) if whole else step
        draw = torch.Generator(device="cuda").manual_seed(0)
        got = []
        for start in (0, 100, 200):
            logits = torch.randn(100, 10, device="cuda", generator=draw).requires_grad_()
            y = torch.arange(100, device="cuda") % 10
            loss = run(logits, y, torch.arange(start, start + 100, device="cuda"))
            loss.backward()
            got += [loss.detach().double(), logits.grad.double()]  # type: ignore[union-attr]
        outputs.append(got + [value.double() for value in method.state_dict().values()])
    worst = max(float((a - b).abs().max()) for a, b in zip(*outputs, strict=True))
    return {"compiled_fullgraph_minus_eager": worst}


# ---------------------------------------------------------------- time and memory


def check_overhead(report: Report, allowed: float) -> None:
    overhead.sweep(overhead.CUDA, overhead.LOOPS[:5], 3, allowed - 15, report)


def check_alternatives(report: Report, allowed: float) -> None:
    """Seconds of an epoch and peak memory of whole runs, one after another; the plain loop comes first and last.

    MW-Net's step looks one step ahead and cannot be captured; it is beside the plain loop kernel by kernel.
    """
    end, rows = time.monotonic() + allowed - 10, []
    runs = [("apw-e", "pass"), ("apw-e", "running"), ("rapw", "running"), ("superloss", "pass"), ("infobatch", "pass")]
    plain = ("plain", "-")
    modes = {"graph": [plain, *runs, plain], "eager": [plain, ("mw-net", "pass"), plain]}
    for mode, names in modes.items():
        for name, measure in names:
            if time.monotonic() > end:
                return
            rows.append({"method": name, "measure": measure, "mode": mode, **_whole(name, measure, mode)})
            report(rows)


def _whole(name: str, measure: str, mode: str) -> dict[str, Any]:
    setting = Setting(mode=mode, device="cuda")
    data = images(setting.rows, "cuda")
    gc.collect()
    torch.cuda.empty_cache()
    with scale.Peak("cuda") as peak:
        trained = Trained(setting)
        loop = Plain(setting, data, trained) if name == "plain" else With(setting, data, trained, name, measure)
        loop.epoch()
        took = [seconds(loop.epoch, "cuda") for _ in range(3 if mode == "graph" else 1)]
    captured = len(loop.step._captured) if isinstance(getattr(loop, "step", None), GraphedStep) else None
    found = {"seconds": statistics.median(took), "range": [min(took), max(took)], "n": len(took)}
    return {**found, "peak_mib_over_data": peak.bytes / 2**20, "captured_graphs": captured}


# ---------------------------------------------------------------- all of them

SECTIONS: dict[str, tuple[float, Callable[[Report, float], None]]] = {
    "kernels": (25, check_kernels),
    "scale": (25, check_scale),
    "steps": (55, check_steps),
    "alternatives": (75, check_alternatives),
    "overhead": (170, check_overhead),
}


def page(results: dict[str, Any]) -> str:
    """The results for people."""
    head, parts = results["environment"], results["sections"]
    words = f"{head['accelerator']}, torch {head['torch']}, python {head['python']}, commit {head['commit']}."
    lines = ["# On an accelerator", "", f"```\n{head['command']}\n```", "", words]
    titles = {"kernels": "Fused kernels against plain torch", "steps": "Steps: no waiting, captured, one graph"}
    for name, part in parts.items():
        found = part.get("results")
        lines += ["", f"## {titles.get(name, name.capitalize())}", ""]
        if "error" in part:
            lines += [f"Not finished: {part['error']}", ""]
        if name == "overhead" and found:
            lines.append(overhead.table(found))
        elif name == "scale" and found:
            lines.append(scale.table(found))
        elif name == "alternatives" and found:
            lines.append(_alternatives_table(found))
        elif found:
            lines += [f"- {key}: {_words(value)}" for key, value in found.items()]
    return "\n".join(lines) + "\n"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(part)}" for key, part in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _alternatives_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| method | measure | mode | s an epoch (range) | peak MiB over the data |", "|---|---|---|---|---|"]
    for row in rows:
        low, high = row["range"]
        took = f"{row['seconds']:.3f} ({low:.3f}-{high:.3f})"
        head = f"| {row['method']} | {row['measure']} | {row['mode']} |"
        lines.append(f"{head} {took} | {row['peak_mib_over_data']:.0f} |")
    return "\n".join(lines)


class TooLong(BaseException):
    """Not an ``Exception``, so that a section that catches its own errors does not catch this one."""


def _ring(*_: object) -> None:
    raise TooLong("the section took longer than its share")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--section", nargs="+", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--seconds", type=float, default=190.0, help="for all sections together")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page of an earlier call")
    options = parser.parse_args()
    held = json.loads(options.out.read_text())["sections"] if options.out.exists() else {}
    if options.page:
        save_page(options.out.with_suffix(".md"), page(json.loads(options.out.read_text())))
        return
    run(options, {"environment": where("python benchmarks/gpu.py --out results/gpu.json"), "sections": held})


def run(options: argparse.Namespace, results: dict[str, Any]) -> None:
    end = time.monotonic() + options.seconds
    signal.signal(signal.SIGALRM, _ring)
    for name in options.section:
        share, check = SECTIONS[name]
        allowed = min(share if len(options.section) > 1 else options.seconds, end - time.monotonic())
        held: dict[str, Any] = {"results": None}
        results["sections"][name] = held

        def report(value: Any, held: dict[str, Any] = held) -> None:
            held["results"] = value
            save(options.out, results)

        began = time.monotonic()
        try:
            if allowed < 5:
                raise TooLong("no time was left")
            signal.alarm(int(allowed))
            check(report, allowed)
        except BaseException as error:
            held["error"] = f"{type(error).__name__}: {error}"[:1000]
            traceback.print_exc()
        finally:
            signal.alarm(0)
        held["took_s"] = time.monotonic() - began
        save(options.out, results)
        print(name, held, flush=True)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
