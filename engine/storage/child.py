"""Child processes that do not outlive their parent, also when that is killed with -9.

`dies_with_parent(argv)` is a command that runs `argv` and asks the kernel (Linux: PR_SET_PDEATHSIG) to end it when the
parent goes. The request belongs to the *thread* that starts the child, so start it from a thread that lives as long as
the child should. A tiny Python program makes the request and then becomes `argv`: the same process id, and nothing runs
between fork and exec in a process that has threads. If the kernel has no such request, `argv` runs as it is.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence

SUPERVISOR = "ZEDLOG_SUPERVISOR"
"""The variable by which a process that keeps children running tells each of them who it is: a name that nobody else
has, a colon, and its process id. It starts a child anew only when the one before has ended, so a child knows that any
other process with the same supervisor is gone (engine/storage/lease.py).
"""


def supervisor_mark() -> str:
    """A value of that variable, for the children of this process. Only one of them may serve a database at a time."""
    return f"{secrets.token_hex(8)}:{os.getpid()}"


def supervisor() -> str | None:
    """The name of this process's supervisor; None if it has none. A process further down, which inherited the variable,
    has none.
    """
    name, _, pid = os.environ.get(SUPERVISOR, "").partition(":")
    return name if name and pid == str(os.getppid()) else None


# Arguments: the parent's process id, then the command. If the parent went before the request was made, its id
# is no longer our parent's.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def dies_with_parent(argv: Sequence[str]) -> list[str]:
    """A command that runs `argv` (its first part is a path) as a child that gets SIGTERM when we are gone."""
    if not sys.platform.startswith("linux"):
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *argv]
