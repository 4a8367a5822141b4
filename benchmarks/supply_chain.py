"""Known vulnerabilities and licences of what the extras pull: ``make audit``.

Licences are read from the installed packages; vulnerabilities are looked up by pip-audit, which needs a network.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
GIVES_FREELY = r"apache|mit\b|bsd|psf|python|isc\b|mpl|mozilla|hpnd|unlicense|cc0|zlib|lgpl|boost|blueoak|mit-cmu"
# Packages whose licence is none of these, or is not stated: each was looked at.
LOOKED_AT = {
    "cuda-": "NVIDIA's licence for CUDA, which comes with torch's own wheels",
    "nvidia-": "NVIDIA's licence for CUDA, which comes with torch's own wheels",
}


def required(names: list[str]) -> tuple[dict[str, Distribution], list[str]]:
    """The installed packages that some requirements pull, and the names of those that are not installed."""
    found: dict[str, Distribution] = {}
    missing: list[str] = []
    waiting = [Requirement(name) for name in names]
    seen = set()
    while waiting:
        asked = waiting.pop()
        if str(asked) in seen or asked.name.lower() == "torchcurriculum":
            continue
        seen.add(str(asked))
        try:
            held = distribution(asked.name)
        except PackageNotFoundError:
            missing.append(asked.name)
            continue
        found[asked.name.lower()] = held
        for inner in map(Requirement, held.requires or ()):
            wanted = (
                (inner.marker.evaluate({"extra": extra}) for extra in (*asked.extras, "")) if inner.marker else [True]
            )
            if any(wanted):
                waiting.append(inner)
    return found, sorted(set(missing))


def licence(package: Distribution) -> str:
    """What a package says of its licence, in a line."""
    told = package.metadata
    classes = [line.rsplit("::", 1)[-1].strip() for line in told.get_all("Classifier") or () if "License ::" in line]
    stated = told.get("License-Expression") or "; ".join(classes) or (told.get("License") or "").split("\n")[0]
    return stated.strip()[:60] or "not stated"


def check_licences() -> bool:
    """Prints how often each licence occurs; whether every one of them can be used freely."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: needs for name, needs in project["optional-dependencies"].items() if name != "dev"}
    found, missing = required(project["dependencies"] + [need for needs in extras.values() for need in needs])
    stated = {name: licence(package) for name, package in sorted(found.items())}
    print(f"{len(found)} packages of {len(extras)} extras:")
    for words, count in Counter(stated.values()).most_common():
        print(f"  {count:>4}  {words}")
    if missing:
        print(f"not installed, so not looked at: {', '.join(missing)}")
    odd = {name: words for name, words in stated.items() if not re.search(GIVES_FREELY, words, re.IGNORECASE)}
    odd = {name: words for name, words in odd.items() if not name.startswith(tuple(LOOKED_AT))}
    for name, words in odd.items():
        print(f"look at this licence: {name}: {words}")
    return not odd


def check_vulnerabilities() -> bool:
    """Whether pip-audit knows no vulnerability in the versions that ``make`` installs; True without a network."""
    if importlib.util.find_spec("pip_audit") is None:
        print("pip-audit is not installed: known vulnerabilities were not looked up")
        return True
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(ROOT / "constraints.txt"), "--no-deps"]
    command += ["--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"pip-audit could not ask ({reason[:200]}): known vulnerabilities were not looked up")
        return True
    skipped = [package["skip_reason"] for package in packages if "skip_reason" in package]
    print(f"{len(packages) - len(skipped)} of {len(packages)} packages were looked up for known vulnerabilities")
    if skipped:
        print(f"pip-audit could not ask about {len(skipped)} of them; of the first it says: {skipped[0][:200]}")
    found = [
        (package["name"], package["version"], one["id"]) for package in packages for one in package.get("vulns", ())
    ]
    for name, version, advisory in found:
        print(f"known vulnerability: {name} {version}: {advisory}")
    return not found


if __name__ == "__main__":
    results = [check_licences(), check_vulnerabilities()]
    sys.exit(0 if all(results) else 1)
