"""The root directories below which bulk jobs may read and write.

In: a path as a client gives it, and a root. Out: the real path, inside of the root, or an error. Always: `..` and
symbolic links are followed before the decision, so none of them leads out. A path with another scheme than `file:`
belongs to one of Spark's file systems and is accepted only if that scheme is allowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote, urlsplit

from engine.errors import PathNotAllowedError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def allowed_path(path: str, root: Path | None, schemes: Collection[str], what: str) -> Path | str:
    """The path below `root`, its symbolic links resolved; or the URL of an allowed scheme, as it stands.

    what: `import` or `export`, for the messages.

    Raises:
        PathNotAllowedError: it is outside, its scheme is not allowed, or there is no root.
    """
    scheme = _SCHEME.match(path)
    if scheme and scheme[1].lower() != "file":
        if scheme[1].lower() in schemes:
            return path
        raise PathNotAllowedError(
            f"{path}: {what}s with the scheme {scheme[1]}: are not allowed; the engine's option "
            f"--bulk-scheme allows schemes",
            path=path,
        )
    if root is None:
        raise PathNotAllowedError(
            f"{what}s of files on the engine's machine are switched off; start the engine with --{what}-root DIR, "
            f"or set ZEDLOG_{what.upper()}_ROOT",
            path=path,
        )
    local = unquote(urlsplit(path).path) if scheme else path
    base = Path(os.path.realpath(root))
    real = Path(os.path.realpath(base / local))
    if real != base and base not in real.parents:
        raise PathNotAllowedError(f"{path} is outside of the {what} root", path=path)
    return real
