"""The files of an import: turns the paths that the client gave into the URLs that Spark reads.

In: a request and the places where files may be read. Out: for each file or URL, what Spark reads and its name in
messages. Always: every local file exists, is a regular file, and lies inside of the root, also when a symbolic link
names it. A path of a folder stands for the files in it whose names have the format's suffix.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engine.bulk.request import FACTS, PACKED, ImportRequest, suffixes
from engine.bulk.roots import allowed_path
from engine.errors import SourceUnreadableError

_PATTERN = "{}[]*?\\"
"""Characters that Hadoop takes for a pattern of names; it has no way to quote them."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where jobs may read and write. uploads: files that the service has received. schemes: of other file systems, and
    of what is no file system (jdbc, kafka), that may be used. connections: the operator's files about the latter."""

    import_root: Path | None = None
    export_root: Path | None = None
    uploads: Path | None = None
    schemes: frozenset[str] = field(default_factory=frozenset)
    connections: Path | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """url: what Spark reads. name: as the client knows it. path: where it is a file of this machine."""

    url: str
    name: str
    path: Path | None = None

    @property
    def stem(self) -> str:
        """The name without folders and suffixes: the relation of a Souffle file."""
        name = self.name.rstrip("/").rpartition("/")[2]
        for suffix in (*PACKED, *suffixes(FACTS)):
            name = name.removesuffix(suffix)
        return name


def sources_of(request: ImportRequest, places: Places) -> list[Source]:
    """The files of a request, in order.

    Raises:
        PathNotAllowedError: one is outside of the root, or its scheme is not allowed. SourceUnreadableError: one does
        not exist or cannot be read, or there is no file at all.
    """
    root = places.uploads if request.uploaded else places.import_root
    found: list[Source] = []
    for path in request.paths:
        allowed = allowed_path(path, root, places.schemes, "import")
        if isinstance(allowed, str):
            found.append(Source(allowed, path))
            continue
        assert root is not None, "a local path is allowed below a root only"
        if request.kind is not None:
            found.append(_table(allowed, path, request))
            continue
        for file in _files(allowed, path, request):
            real = allowed_path(str(file), root, (), "import")
            assert isinstance(real, Path), "a local path stays one"
            name = path if file == allowed else f"{path.rstrip('/')}/{file.name}"
            found.append(_source(real, name, request))
    return found


def _files(path: Path, name: str, request: ImportRequest) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    endings = tuple(suffix + packed for suffix in suffixes(request.format) for packed in ("", *PACKED))
    try:
        inside = sorted(
            p for p in path.iterdir() if p.name.endswith(endings) and not p.name.startswith((".", "_"))
        )
    except OSError as error:
        raise SourceUnreadableError(
            f"the folder {name} cannot be read: {error.strerror}", file=name
        ) from error
    if not inside:
        raise SourceUnreadableError(
            f"there is no file {' or '.join('*' + s for s in suffixes(request.format))} in the folder {name}",
            file=name,
        )
    yield from inside


def _table(path: Path, name: str, request: ImportRequest) -> Source:
    if not path.is_dir():
        raise SourceUnreadableError(
            f"there is no folder {name}, and so no table of the format {request.format}", file=name
        )
    return Source(f"file://{path}", name)


def _source(path: Path, name: str, request: ImportRequest) -> Source:
    if not path.exists():
        raise SourceUnreadableError(f"there is no file {name}", file=name)
    if not path.is_file():
        raise SourceUnreadableError(f"{name} is neither a file nor a folder", file=name)
    if not os.access(path, os.R_OK):
        raise SourceUnreadableError(f"{name} cannot be read: permission denied", file=name)
    if any(c in _PATTERN for c in str(path)):
        raise SourceUnreadableError(
            f"{name}: Spark would read a name with one of the characters {_PATTERN} as a pattern; rename the file",
            file=name,
        )
    return Source(f"file://{path}", name, path)


def damage(source: Source) -> str | None:
    """The damage of a compressed file, if that is why it could not be read; costs a pass over it."""
    if source.path is None or source.path.suffix != ".gz":
        return None
    try:
        with gzip.open(source.path) as stream:
            while stream.read(1 << 20):
                pass
    except (OSError, EOFError, zlib.error) as error:
        return f"{source.name} is not a complete gzip file: {error}"
    return None
