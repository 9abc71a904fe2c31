"""Compile the kernels once, with a progress line: `python -m engine.resident.warm`.

The compiled code is cached on disk and loaded from there by every later process. numba notices when a kernel's own
file changes, but not when one of the files that it inlines does; a digest over all of them decides that here.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import time
from pathlib import Path

KERNELS = ("table", "index", "join")
_HERE = Path(__file__).parent


def _digest() -> str:
    sources = [_HERE / f"{name}.py" for name in ("layout", "hashing", *KERNELS)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def cache_folder() -> Path:
    """Where the compiled kernels lie: $NUMBA_CACHE_DIR, or beside the sources."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen) if chosen else _HERE / "__pycache__"


def drop_stale() -> bool:
    """Remove compiled kernels of other sources; returns whether the cache is now (or was) of these sources."""
    folder = cache_folder()
    stamp = folder / "zedlog-kernels.sha256"
    if stamp.exists() and stamp.read_text() == _digest():
        return True
    for pattern in ("*.nbi", "*.nbc"):
        for path in folder.rglob(pattern):
            if path.name.split(".")[0] in KERNELS:
                path.unlink(missing_ok=True)
    return False


def main() -> None:
    """Compile what is not compiled, and say so."""
    fresh = drop_stale()
    start = time.perf_counter()
    for number, name in enumerate(KERNELS, 1):
        if not fresh:
            print(f"Compiling kernels {number}/{len(KERNELS)} ({name}) ...", file=sys.stderr, flush=True)
        importlib.import_module(f"engine.resident.{name}")
    folder = cache_folder()
    if folder.is_dir():
        (folder / "zedlog-kernels.sha256").write_text(_digest())
    verb = "loaded from the cache" if fresh else "compiled"
    print(f"Kernels {verb} in {time.perf_counter() - start:.1f} s.", file=sys.stderr)


if __name__ == "__main__":
    main()
