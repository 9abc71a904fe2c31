"""Names of the keys of one database in Redis: all begin with `zedlog:{DATABASE}:`.

The braces are part of the name: in a Redis cluster they put all keys of a database on one node, which the
atomic scripts need.

| key | type | what |
|---|---|---|
| `log` | stream | transactions: field `tx`; ids are the transaction ids |
| `idem:H` | string | `DIGEST ID` of the transaction appended with the Idempotency-Key of hash H; expires |
| `head` | hash | `epoch`, `last_id`, `incarnation`, `processed`, `epoch_time`: the newest publication |
| `manifest:E` | string | the top manifest of epoch E |
| `o:ID` | string | an object named by its content: block, segment, relation, program, symbols |
| `results` | stream | outcomes, under their transaction's id |
| `epochs` | stream | summaries of epochs; epoch E has the id `E-1` |
| `published` | stream | one short entry per publication: wakes those who wait |
| `lease` | string | who the single writer is; expires when its heartbeat stops |
| `generation` | integer | counts the leases ever given: the fencing token |
| `status` | hash | the engine's state for readers, and the faults that it met |
| `begun` | hash | the transactions that the engine applies now, or applied when it ended (engine/storage/begun.py) |
| `cancels` | set | ids of transactions that are to be cancelled |
| `tokens` | hash | name -> an access token: its rights, and the hash of its secret |
| `holds` | sorted set | epochs that are being read for long, by the time until which they are held |
| `jobs` | sorted set | ids of bulk jobs by the time of their creation |
| `jobs:queue`, `jobs:running` | list | ids of jobs that wait; of the ones that an engine has taken |
| `jobs:batches` | hash | import -> the transaction that names its batch files |
| `audits` | sorted set | ids of audits by the time of their request |
| `audits:queue` | list | ids of audits that wait for the engine |
| `audits:last` | hash | kind of audit -> the summary of the one that ended last |
| `audit:ID` | string | one audit: what was asked for, status, report |
| `job:ID` | hash | one job: request, status, progress, result |
| `subscriptions` | hash | name of a subscription -> `LIMIT CREATED FILTER` (engine/storage/subscriptions.py) |
| `subscriptions:acknowledged` | sorted set | names of subscriptions by the last epoch that was acknowledged |
| `subscriptions:holding` | sorted set | those among them for which the publisher still keeps epochs |
| `jobkey:H` | string | `DIGEST ID` of the job submitted with the Idempotency-Key of hash H; expires |
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.errors import InvalidRequestError, shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Keys:
    """The key names of one database. Raises InvalidRequestError if the database's name cannot be part of a key."""

    database: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.database):
            raise InvalidRequestError(
                f"{shown(self.database)} is not a database name; a name has up to 64 letters, digits, '_', '.' and "
                "'-', and begins with a letter or a digit"
            )

    @property
    def prefix(self) -> str:
        return f"zedlog:{{{self.database}}}:"

    @property
    def log(self) -> str:
        return self.prefix + "log"

    @property
    def head(self) -> str:
        return self.prefix + "head"

    @property
    def results(self) -> str:
        return self.prefix + "results"

    @property
    def epochs(self) -> str:
        return self.prefix + "epochs"

    @property
    def published(self) -> str:
        return self.prefix + "published"

    @property
    def lease(self) -> str:
        return self.prefix + "lease"

    @property
    def generation(self) -> str:
        return self.prefix + "generation"

    @property
    def status(self) -> str:
        return self.prefix + "status"

    @property
    def begun(self) -> str:
        return self.prefix + "begun"

    @property
    def cancels(self) -> str:
        return self.prefix + "cancels"

    @property
    def tokens(self) -> str:
        return self.prefix + "tokens"

    @property
    def holds(self) -> str:
        return self.prefix + "holds"

    @property
    def jobs(self) -> str:
        return self.prefix + "jobs"

    @property
    def job_queue(self) -> str:
        return self.prefix + "jobs:queue"

    @property
    def jobs_running(self) -> str:
        return self.prefix + "jobs:running"

    @property
    def job_batches(self) -> str:
        return self.prefix + "jobs:batches"

    @property
    def subscriptions(self) -> str:
        return self.prefix + "subscriptions"

    @property
    def acknowledged(self) -> str:
        return self.prefix + "subscriptions:acknowledged"

    @property
    def holding(self) -> str:
        return self.prefix + "subscriptions:holding"

    @property
    def audits(self) -> str:
        return self.prefix + "audits"

    @property
    def audit_queue(self) -> str:
        return self.prefix + "audits:queue"

    @property
    def last_audits(self) -> str:
        return self.prefix + "audits:last"

    def audit(self, audit_id: str) -> str:
        return f"{self.prefix}audit:{audit_id}"

    def job(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"

    def job_key(self, key_hash: str) -> str:
        return f"{self.prefix}jobkey:{key_hash}"

    def idempotency(self, key_hash: str) -> str:
        return f"{self.prefix}idem:{key_hash}"

    def manifest(self, epoch: int) -> str:
        return f"{self.prefix}manifest:{epoch}"

    def object(self, object_id: str) -> str:
        return f"{self.prefix}o:{object_id}"
