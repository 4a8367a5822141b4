"""Provenance of results: versions, hardware and commit; and indented JSON."""

from __future__ import annotations

import json
import math
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..record.files import overwrite

__all__ = ["environment", "write_json"]


def environment() -> dict[str, Any]:
    """Versions, hardware and commit."""
    ours = _git("ls-files", "--error-unmatch", Path(__file__).name)  # an installed copy may be in another repository
    commit = _git("rev-parse", "HEAD") if ours else None
    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    return {**versions, "machine": platform.machine(), "accelerator": accelerator, "commit": commit}


def _git(*words: str) -> str | None:
    """The output of git in this folder; None if it fails or is not installed."""
    try:
        asked = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def write_json(path: Path, value: Any) -> None:
    """Writes indented JSON atomically; non-finite numbers become null."""
    with overwrite(path) as file:
        file.write(json.dumps(_without_nan(value), indent=1, allow_nan=False) + "\n")


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
