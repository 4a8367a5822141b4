"""No global state is changed from threads: what changes it is listed here, each with the reason why it may."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "torchcurriculum"
GLOBAL = re.compile(
    r"catch_warnings|simplefilter|filterwarnings|(?<!Generator\(\))\bmanual_seed\(|manual_seed_all|np\.random\.seed|"
    r"\brandom\.seed|set_bit_generator|set_rng_state|fork_rng|os\.chdir|os\.umask|os\.environ\[|os\.putenv|"
    r"signal\.signal\(|locale\.setlocale|set_default_dtype|set_num_threads|cudnn\.\w+ =|rcParams|rcdefaults|rc_context|"
    r"safe_globals\(|sys\.(stdout|stderr|path) ="
)
OWN = re.compile(r"Generator\([^()]*\)\.manual_seed")  # a generator that nobody else holds
ALLOWED = {
    "report/svg.py": "matplotlib's settings are global: one thread draws at a time, under a lock",
    "lab/data/cifar_n.py": "torch's allow-list is global: one thread reads at a time, under a lock",
    "lab/pool.py": "the number of threads of a worker process, set once when it starts",
    "lab/trainer.py": "one training for each process; initial weights and dropout draw from the global generator",
    "lab/recipes/separable_figures.py": "a command of its own, which draws in the main thread",
    "record/sinks.py": "MLflow reads an environment variable when it is opened, under a lock",
    "checkpoint/stop.py": "signal handlers, set in the main thread only",
    "functional/meta.py": "forks the generators around a forward pass that must draw the same numbers",
    "clean/folds.py": "a network draws its initial weights from the global generator, which is forked around it",
    "functional/frequency.py": "torchvision's RandAugment draws from the global generator, which is forked around it",
    "methods/_base/weights.py": "a second network draws its initial weights once, with the generator forked",
    "shell/reader.py": "transforms draw from the global generators; they are put back",
    "integrations/sklearn.py": "a module draws its initial weights from the global generator",
    "fast/graphs.py": "cuDNN may not try out kernels while a step is captured",
}
LOCKED = ("report/svg.py", "lab/data/cifar_n.py", "record/sinks.py")


def test_whoever_changes_global_state_is_known() -> None:
    found = {}
    for path in SOURCE.rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if ">>>" not in line and "..." not in line[:12]]
        changes = [line.strip() for line in lines if GLOBAL.search(OWN.sub("", line))]
        if changes:
            found[str(path.relative_to(SOURCE))] = changes
    unknown = {name: changes for name, changes in found.items() if name not in ALLOWED}
    assert not unknown
    assert set(ALLOWED) <= set(found), f"no longer needed: {set(ALLOWED) - set(found)}"
    for name in LOCKED:
        assert "threading.Lock()" in (SOURCE / name).read_text(), name


def test_warnings_are_never_switched_off_where_threads_may_be() -> None:
    users = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if "catch_warnings" in path.read_text()}
    assert users <= {"report/svg.py"}
