"""The bulk jobs of the soak: imports through Spark, and backups that are restored into databases of their own.

Always: an import has rows that no other one has, so that one that is lost, applied twice, or applied in half is noticed
by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from engine.backup.reading import opened
from engine.errors import InvalidBackupError
from engine.storage.connection import connect
from tests.live import free_port
from tests.soak.faults import part_of
from tests.soak.load import Done, Shared
from tests.soak.processes import end, is_ready
from tests.soak.tally import Tally

RELATION = "brought"
MOST_ROWS = 400
# Between the end of a restore and the beginning of the next one.
RESTORE_EVERY = 60.0
# A job is given up as lost after so long without an end.
PATIENCE = 600.0
# How a job may fail because of the faults; it has changed nothing then.
_FAULTS = frozenset(
    {"bulk_storage", "engine_unavailable", "job_abandoned", "spark_unavailable", "storage_unavailable"}
)


def _job(http: httpx.Client, tally: Tally, path: str, key: str, **body: Any) -> dict[str, Any] | None:
    """The job at its end, submitted with a key until it is known; None if the service keeps it no longer."""
    deadline = time.monotonic() + PATIENCE
    where: str | None = None
    while time.monotonic() < deadline:
        try:
            posted = {"headers": {"idempotency-key": key}, **body}
            answer = http.post(path, **posted) if where is None else http.get(where)
            told = answer.json()
            if answer.status_code in (200, 202):
                if told["status"] in ("succeeded", "failed", "cancelled"):
                    return told  # type: ignore[no-any-return]
                where = told["status_url"]
            elif answer.status_code != 503:
                tally.bad("unexpected answers", 1, f"{answer.status_code} {answer.text[:500]}")
                return None
        except (httpx.TransportError, json.JSONDecodeError):
            tally.add("sent again")
        time.sleep(0.2)
    tally.bad("unexpected answers", 1, f"{path} of {key} has not ended after {PATIENCE:.0f} s: {where}")
    return None


def _failed(tally: Tally, what: str, job: dict[str, Any]) -> None:
    problem = job["problem"] or {}
    print(f"{what}: {json.dumps(problem)[:1000]}", flush=True)
    tally.add(f"{what} that failed ({problem.get('code')})")
    if problem.get("code") not in _FAULTS:
        tally.bad("unexpected answers", 1, f"{what}: {json.dumps(problem)[:1000]}")


class Importer(threading.Thread):
    """One import after the other, without a pause when the writers pause: what is under way then is `begun` without an
    outcome."""

    def __init__(self, shared: Shared, seed: int) -> None:
        super().__init__(name="importer", daemon=True)
        self._shared, self._random = shared, random.Random(seed)

    def run(self) -> None:
        n = 0
        with self._shared.client() as http:
            while not self._shared.stop.is_set():
                n += 1
                rows = [[n, i] for i in range(self._random.randint(1, MOST_ROWS))]
                with self._shared.lock:
                    self._shared.begun[n] = len(rows)
                done = self._import(http, n, rows)
                with self._shared.lock:
                    if done is not None:
                        self._shared.done.append(done)
                    self._shared.ended.add(n)
                self._shared.stop.wait(self._random.uniform(0, 4))

    def _import(self, http: httpx.Client, n: int, rows: list[list[int]]) -> Done | None:
        """None: it changed nothing."""
        upload = self._upload(http, "".join(f"{a},{b}\n" for a, b in rows))
        if upload is None:
            return None
        tally = self._shared.tally
        body = {"upload": upload, "relation": RELATION, "types": ["number", "number"]}
        job = _job(http, tally, "/v1/imports", f"import-{n}", json=body)
        if job is None:
            return None
        if job["status"] != "succeeded":
            _failed(tally, "imports", job)
            return None
        tally.add("imports")
        facts = {"facts": [{"relation": RELATION, "tuples": rows, "weight": 1}]}
        return Done(job["transaction"], job["result"]["epoch"], facts)

    def _upload(self, http: httpx.Client, text: str) -> str | None:
        while not self._shared.stop.is_set():
            with contextlib.suppress(httpx.TransportError, json.JSONDecodeError):
                answer = http.post("/v1/uploads", params={"name": "brought.csv"}, content=text.encode())
                if answer.status_code == 201:
                    return str(answer.json()["upload"])
                if answer.status_code != 503:
                    self._shared.tally.bad(
                        "unexpected answers", 1, f"{answer.status_code} {answer.text[:500]}"
                    )
                    return None
            time.sleep(0.2)
        return None


class Restorer(threading.Thread):
    """Every now and then, a backup of the running database is restored into another database on the same Redis, whose
    engine is killed meanwhile; numbers of tuples and digests must be those of the backup.

    serve(name, database, folder, port) starts the `zedlog serve` of a database.
    """

    def __init__(
        self,
        shared: Shared,
        folder: Path,
        redis_url: str,
        serve: Callable[[str, str, Path, int], subprocess.Popen[bytes]],
        seed: int,
    ) -> None:
        super().__init__(name="restorer", daemon=True)
        self._shared, self._folder, self._redis_url, self._serve = shared, folder, redis_url, serve
        self._random = random.Random(seed)

    def run(self) -> None:
        number = 0
        while not self._shared.stop.wait(self._random.uniform(0.2, 1) * RESTORE_EVERY):
            number += 1
            backup = self._folder / "restored.zip"
            if self._fetched(backup):
                self._restore(f"copy{number}", backup)

    def _fetched(self, path: Path) -> bool:
        """A whole backup, or whoever reads it notices; it may have been cut off."""
        try:
            with self._shared.client() as http, http.stream("GET", "/v1/backup") as answer:
                if answer.status_code != 200:
                    return False
                with path.open("wb") as file:
                    for portion in answer.iter_bytes():
                        file.write(portion)
            opened(path)
        except (httpx.TransportError, InvalidBackupError):
            self._shared.tally.add("backups that were cut off")
            return False
        return True

    def _restore(self, database: str, backup: Path) -> None:
        folder, port = self._folder / database, free_port()
        serve = self._serve(database, database, folder, port)
        tally = self._shared.tally
        killer = threading.Timer(self._random.uniform(0, 3), self._kill, (serve,))
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=40, trust_env=False) as http:
                if not is_ready(http, serve, PATIENCE, self._shared.stop):
                    return
                killer.start()
                job = _job(http, tally, "/v1/restore", "restore", content=backup.read_bytes())
            if job is None:
                return
            if job["status"] != "succeeded":
                _failed(tally, "restores", job)
                return
            tally.add("restores")
            differing = job["result"]["differences"]
            tally.bad("wrong backups", len(differing), f"restored into {database}: {differing[:5]}")
        finally:
            killer.cancel()
            end(serve)
            shutil.rmtree(folder, ignore_errors=True)
            self._forget(database)

    def _kill(self, serve: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            pid = part_of(serve.pid, "engine")
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self._shared.tally.add("kill -9 of an engine that restores")

    def _forget(self, database: str) -> None:
        """So that Redis does not grow with each of them. What cannot be removed now, because Redis is away, stays."""
        with contextlib.suppress(Exception):
            client = connect(self._redis_url)
            for key in client.scan_iter(match=f"zedlog:{database}:*", count=1000):
                client.delete(key)
            client.close()
