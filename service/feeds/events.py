"""Events of a feed, as Server-Sent Events or as lines of JSON.

An event of a change is encoded once for all its listeners, and cut into parts, so that what is under way to a listener
does not grow with the event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from sse_starlette.event import ServerSentEvent

from service.formats import NDJSON

SSE: Final = "text/event-stream"
FEED_TYPES: Final = (SSE, NDJSON)
PART_BYTES: Final = 64 * 1024

ANSWER: Final = "answer"
"""The name that stands for a query where others have a relation's name."""


@dataclass(slots=True)
class Event:
    """token: the position after it, which a listener comes back with; None if it must come back with an older one.
    tuples: how many it has."""

    name: str
    data: Mapping[str, Any]
    token: str | None = None
    tuples: int = 0
    _encoded: dict[str, bytes] = field(default_factory=dict)

    def encoded(self, kind: str) -> bytes:
        found = self._encoded.get(kind)
        if found is None:
            found = self._encoded[kind] = self._encode(kind)
        return found

    def parts(self, kind: str) -> Iterator[memoryview]:
        """The encoded event, cut."""
        whole = memoryview(self.encoded(kind))
        for start in range(0, len(whole), PART_BYTES):
            yield whole[start : start + PART_BYTES]

    def _encode(self, kind: str) -> bytes:
        if kind == NDJSON:
            line = {"event": self.name, **self.data}
            return orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
        data = orjson.dumps(self.data, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        return ServerSentEvent(data, event=self.name, id=self.token, sep="\n").encode()
