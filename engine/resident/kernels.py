"""Kernels: functions that numba compiles for one signature each, loaded when they are first called.

The first call loads the compiled code from numba's cache and replaces the function in its module with it: later calls
through the module cost nothing extra, and a process loads only what it uses. If the cache lacks a kernel, as after an
install, all are compiled at once, which takes a minute and is reported (`telling`). If there is no folder to keep
them in, each process compiles what it uses.

numba notices when a kernel's own file changes, but not when one of the files whose functions it inlines does; a digest
over all of these files, kept beside the compiled code, detects that.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
from numba.core import event as events

logger = logging.getLogger("zedlog.kernels")

STAMP = "zedlog-kernels.sha256"
_SOURCES = (
    "layout",
    "hashing",
    "views",
    "tape",
    "table",
    "index",
    "build",
    "join",
    "climb",
    "dred",
    "rowhash",
)


@dataclass(frozen=True, slots=True)
class Compiling:
    """The progress of a compilation. kept: later processes find the kernels in a folder."""

    done: int
    total: int
    kept: bool

    @property
    def reason(self) -> str:
        if self.kept:
            return "compiling kernels (once after an install)"
        return (
            "compiling kernels (at every start, because there is no writable folder to keep them in; "
            "name one in NUMBA_CACHE_DIR)"
        )

    def __str__(self) -> str:
        return f"{self.reason}, {self.done} of {self.total}"


Told = Callable[[Compiling], None]


class _Kernel:
    """A function and its signature; `compiled` is what to call, once it is loaded."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self._function = function
        self._signature = signature
        self.compiled: Callable[..., Any] | None = None

    def is_named(self, declared: Callable[..., Any]) -> bool:
        """Whether this is what `kernel` returned for it, or what stands in its place since it was loaded."""
        other = (declared.__module__, declared.__name__)
        return (self._function.__module__, self._function.__name__) == other

    @functools.cached_property
    def lazy(self) -> Any:
        """What other kernels call: it is compiled once for all of them, and for calls from Python."""
        try:
            return self.jit(cache=True)
        except RuntimeError:
            # No folder can be written.
            return self.jit()

    def load(self) -> None:
        try:
            compiled = self._compiled(self.lazy)
        except OSError:
            # No more can be written into the folder. Any other fault comes again here.
            compiled = self._compiled(self.jit())
        self.compiled = compiled
        setattr(sys.modules[self._function.__module__], self._function.__name__, compiled)

    def _compiled(self, dispatcher: Any) -> Any:
        if hasattr(dispatcher, "compile"):
            dispatcher.compile(self._signature)
            dispatcher.disable_compile()
        return dispatcher

    def jit(self, **options: Any) -> Any:
        return numba.njit(nogil=True, **options)(self._function)


_kernels: list[_Kernel] = []
_lock = threading.RLock()
_told: list[Told] = []


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares a function to be a kernel of this signature. Kernels are called without keywords."""

    def declared(function: Callable[..., Any]) -> Callable[..., Any]:
        found = _Kernel(function, signature)
        _kernels.append(found)

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            """Stands in the module until the kernel is loaded."""
            if found.compiled is None:
                _load(found)
            assert found.compiled is not None
            return found.compiled(*arguments)

        return call

    return declared


def inner(declared: Callable[..., Any]) -> Any:
    """A kernel as another kernel calls it."""
    return next(each.lazy for each in _kernels if each.is_named(declared))


@contextmanager
def telling(told: Told) -> Iterator[None]:
    """Within this context, `told` is called when a compilation begins and after each kernel. Otherwise the logger
    `zedlog.kernels` reports the beginning of a compilation.
    """
    _told.append(told)
    try:
        yield
    finally:
        _told.remove(told)


def load_ends() -> bool:
    """Load the first and the last kernel, and compile all if the cache lacks them; returns whether it did. Kernels are
    compiled in their order, so after an interrupted compilation the last one is missing.
    """
    return _load(_kernels[0]) or _load(_kernels[-1])


def load_all() -> bool:
    """Load every kernel; returns whether any had to be compiled."""
    compiled = False
    for each in _kernels:
        compiled |= _load(each)
    return compiled


def _load(wanted: _Kernel) -> bool:
    """Load a kernel, and all others too if it has to be compiled and can be kept. Returns whether it was compiled."""
    with _lock:
        if wanted.compiled is not None:
            return False
        kept = _folder() is not None
        compilation = _Compilation(kept)
        with events.install_listener("numba:compile", compilation):
            wanted.load()
            if not compilation.begun:
                return False
            compilation.tell()
            for other in _kernels if kept else ():
                if other.compiled is None:
                    other.load()
                    compilation.tell()
        return True


class _Compilation(events.Listener):
    """Notices when numba begins to compile, which it does not do for kernels that it finds in its cache."""

    def __init__(self, kept: bool) -> None:
        self.begun = False
        self._kept = kept

    def on_start(self, event: Any) -> None:
        if not self.begun:
            self.begun = True
            self.tell()

    def on_end(self, event: Any) -> None:
        """Does nothing: the functions that a kernel inlines are compiled too, and reported together with it."""

    def tell(self) -> None:
        now = Compiling(sum(each.compiled is not None for each in _kernels), len(_kernels), self._kept)
        for told in _told:
            told(now)
        if not _told:
            _log_once(now.reason)


@functools.cache
def _log_once(text: str) -> None:
    logger.info("%s", text)


@functools.cache
def sources_digest() -> str:
    """A digest of the sources that the kernels are compiled from."""
    package = Path(__file__).parent
    return hashlib.sha256(b"".join((package / f"{name}.py").read_bytes() for name in _SOURCES)).hexdigest()


@functools.cache
def _folder() -> Path | None:
    """The folder in which numba keeps the kernels, after removing those that were compiled from other sources than the
    present ones. None if numba cannot write to any folder, or does not compile at all (NUMBA_DISABLE_JIT).
    """
    try:
        dispatcher = _kernels[0].jit(cache=True)
    except RuntimeError:
        return None
    if not hasattr(dispatcher, "stats"):
        return None
    folder = Path(dispatcher.stats.cache_path)
    digest, stamp = sources_digest(), folder / STAMP
    if not (stamp.exists() and stamp.read_text() == digest):
        for path in folder.glob("*.nb[ci]"):
            if path.name.partition(".")[0] in _SOURCES:
                path.unlink(missing_ok=True)
        stamp.write_text(digest)
    return folder
