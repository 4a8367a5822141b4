"""Nothing speaks to the network unless asked to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
CODE = """
import socket, sys

class Refused(socket.socket):
    def __new__(cls, *arguments, **options):
        raise RuntimeError("a socket was opened")

socket.socket = Refused
sys.addaudithook(lambda event, _: sys.exit(f"network: {event}") if event.startswith("socket.") else None)
import pkgutil, importlib
import torchcurriculum
for module in pkgutil.walk_packages(torchcurriculum.__path__, "torchcurriculum."):
    if not module.name.startswith(("torchcurriculum.integrations", "torchcurriculum.__main__")):
        importlib.import_module(module.name)
from torchcurriculum.cli import main
command = ["run", "digits", "--method", "apw-e", "--seeds", "0", "--epochs", "1", "--out", sys.argv[1]]
sys.exit(main(command))
"""


def test_importing_and_training_opens_no_socket(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
