"""Where the lines of the access log go."""

from __future__ import annotations

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from engine.errors import InvalidRequestError
from service.access.settings import NONE, STDERR

_FILE_BYTES: Final = 10_000_000
_FILES: Final = 2
"""Older files beside the present one."""


class _File(RotatingFileHandler):
    """One file, and older ones. A line costs the write and nothing else that the system is asked for."""

    def shouldRollover(self, record: logging.LogRecord) -> int:  # the name is that of the base class
        return int(self.stream is not None and self.stream.tell() > self.maxBytes)


def configure(where: str) -> None:
    """Let the logger `zedlog.access` write there: `stderr`, `none`, or a file. A program that has set up logging itself
    keeps its own way.

    Raises:
        InvalidRequestError: the file cannot be written.
    """
    log = logging.getLogger("zedlog.access")
    if where == NONE:
        log.setLevel(logging.CRITICAL)
        return
    log.setLevel(logging.INFO)
    if log.hasHandlers():
        return
    handler: logging.Handler
    if where == STDERR:
        handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            Path(where).parent.mkdir(parents=True, exist_ok=True)
            handler = _File(where, maxBytes=_FILE_BYTES, backupCount=_FILES)
        except OSError as error:
            raise InvalidRequestError(
                f"the access log {where} cannot be written: {error.strerror}"
            ) from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
