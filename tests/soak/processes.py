"""The processes of the soak: each has its output in a file, and is ended by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent.parent


def started(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """`python -m ...`, with its output in the file `name`.log."""
    with (folder / f"{name}.log").open("ab") as log:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=folder, env=environment, stdout=log, stderr=log
        )


def is_ready(
    http: httpx.Client, serve: subprocess.Popen[bytes], seconds: float, stop: threading.Event
) -> bool:
    """Waits until a `zedlog serve` is ready; False: it has ended, the time is over, or `stop` is set."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and serve.poll() is None and not stop.is_set():
        with suppress(httpx.TransportError):
            if http.get("/readyz").status_code == 200:
                return True
        time.sleep(0.1)
    return False


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
