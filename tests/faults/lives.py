"""An engine with many lives: a process that forks engines, one after the other, until one ends in order.

    python -m tests.faults.lives URL DATABASE

Everything is imported before the first fork, so a life costs some tens of milliseconds and not two seconds. An engine
kills itself with SIGKILL where tests/faults/injection.py has a fault. At the end the number of killed lives is printed.
"""

from __future__ import annotations

import os
import signal
import sys

from engine.server.loop import restore_reasoner, run_engine
from engine.server.settings import EngineOptions
from tests.faults.injection import install


def die(stage: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    url, database = sys.argv[1:]
    install(die)
    killed, stopping = 0, False
    child = 0

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True
        if child:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    while not stopping:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os._exit(run_engine(url, database, EngineOptions(), restore_reasoner))
        _, status = os.waitpid(child, 0)
        child = 0
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed += 1
        elif not stopping:
            sys.exit(f"an engine ended with status {os.waitstatus_to_exitcode(status)}")
    print(f"killed {killed}", flush=True)


if __name__ == "__main__":
    main()
