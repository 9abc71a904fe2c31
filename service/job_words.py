"""What the stages of a bulk job are called where a person reads it."""

from __future__ import annotations

from typing import Final

STAGES: Final = {
    "spark": "starting Spark",
    "position": "asking for the offsets",
    "look": "looking at the files",
    "types": "finding the types",
    "read": "reading, parsing, summing weights",
    "again": "reading unusual lines again",
    "rejects": "writing the bad rows",
    "verify": "checking the backup",
    "batches": "writing its facts for the engine",
    "append": "appending to the log",
    "apply": "applying the epoch",
    "collect": "reading the snapshot",
    "write": "writing the files",
    "compare": "comparing with the backup",
}
