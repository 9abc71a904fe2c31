"""Files, backups, audits and tokens: both clients against a running system, and jobs of a service in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest

from tests.client.conftest import Both
from tests.client.lossy import Lossy, Script
from tests.live import LiveSystem
from zedlog import Client
from zedlog.client import errors
from zedlog.client.models import Job

Make = Callable[..., Both]
JOB = {
    "job": "j1",
    "kind": "import",
    "status": "queued",
    "cancelling": False,
    "request": {"paths": ["edges.csv"]},
    "created": 1.0,
    "started": None,
    "finished": None,
    "stages": [],
    "transaction": None,
    "result": None,
    "problem": None,
    "status_url": "/v1/jobs/j1",
    "events_url": "/v1/jobs/j1/events",
}
PROBLEM = {
    "type": "/problems/bad_rows",
    "title": "Bad rows",
    "status": 422,
    "detail": "2 rows cannot be read",
    "code": "bad_rows",
    "instance": "/v1/jobs/j1",
    "samples": [{"file": "edges.csv", "line": 3, "reason": "no number"}],
}


def job(status: str, **fields: Any) -> httpx.Response:
    return httpx.Response(200, json={**JOB, "status": status, **fields})


def stages(*done: float) -> list[dict[str, Any]]:
    return [{"name": f"stage{i}", "fraction": part, "seconds": 1.0} for i, part in enumerate(done)]


def test_an_import_sends_its_file_waits_and_tells_how_far_it_is(scripted: Make, tmp_path: Path) -> None:
    file = tmp_path / "my edges.csv"
    file.write_text("a,b\n" * 400_000)
    network = Script(
        httpx.Response(201, json={"upload": "u1", "bytes": 4, "sha256": ""}),
        job("queued"),
        job("queued"),
        job("running", stages=stages(0.5)),
        job("succeeded", stages=stages(1.0, 1.0), result={"rows": 4}),
    )
    told: list[tuple[str, float | None]] = []
    done = scripted(network).import_files(
        file, relation="edge", upload=True, types=["symbol", "symbol"], progress=lambda *how: told.append(how)
    )
    assert (done.status, done.result, done.ended) == ("succeeded", {"rows": 4}, True)
    upload, submitted = network.requests[:2]
    assert dict(upload.url.params) == {"name": "my_edges.csv"}
    assert upload.content == file.read_bytes()
    assert submitted.read() == b'{"relation":"edge","upload":"u1","types":["symbol","symbol"]}'
    assert len(submitted.headers["idempotency-key"]) == 32
    assert told == [
        ("sending", pytest.approx(2**20 / 1_600_000)),
        ("sending", 1.0),
        ("waiting for its turn", 0.0),
        ("stage0", 0.5),
        ("stage1", 1.0),
    ]


def test_a_job_that_failed_is_an_error_with_its_code(scripted: Make) -> None:
    network = Script(job("queued"), job("failed", problem=PROBLEM))
    with pytest.raises(errors.ServiceError, match="2 rows cannot be read") as caught:
        scripted(network).import_files(["edges.csv"], relation="edge")
    assert (caught.value.code, caught.value.problem["samples"]) == ("bad_rows", PROBLEM["samples"])


def test_an_export_whose_answer_is_lost_is_asked_for_again_with_the_same_key(scripted: Make) -> None:
    network = Script(httpx.ReadError("gone"), job("queued", kind="export"))
    made = scripted(network).export("far.csv", query="tc(x, y)", epoch=7, wait=False)
    assert isinstance(made, Job)
    assert len({(r.headers["idempotency-key"], r.content) for r in network.requests}) == 1
    assert network.requests[0].content == b'{"path":"far.csv","query":"tc(x, y)","epoch":7}'


def test_jobs_are_listed_shown_and_cancelled(scripted: Make) -> None:
    network = Script(
        httpx.Response(200, json={"jobs": [JOB]}), job("running"), job("cancelled", cancelling=True)
    )
    client = scripted(network)
    (one,) = client.jobs(5)
    assert client.job(one).status == "running"
    assert client.cancel_job("j1").cancelling
    assert [(r.method, r.url.path) for r in network.requests] == [
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/j1"),
        ("DELETE", "/v1/jobs/j1"),
    ]


def test_only_one_file_can_be_sent(scripted: Make) -> None:
    with pytest.raises(ValueError, match="one file can be sent at a time, not 2"):
        scripted(Script()).import_files(["a.csv", "b.csv"], relation="p", upload=True)


def test_a_backup_is_there_as_a_whole_or_not_at_all(
    both: Both, live: LiveSystem, scripted: Make, tmp_path: Path
) -> None:
    both.add(f"kept_{both.kind}", [(i, "x" * 50) for i in range(2_000)])
    told: list[str] = []
    path = both.backup(tmp_path / "all.zip", progress=lambda doing, part: told.append(doing))
    assert ZipFile(path).testzip() is None
    assert told[-1] == f"backing up: {path.stat().st_size:,} bytes"
    with pytest.raises(FileExistsError, match="overwrite=True replaces it"):
        both.backup(path)
    broken = scripted(Lossy(cuts=[500], path="/v1/backup"), url=live.url)
    with pytest.raises(errors.Unreachable, match="was lost"):
        broken.backup(tmp_path / "half.zip")
    assert [file.name for file in tmp_path.iterdir()] == ["all.zip"]
    with pytest.raises(errors.Conflict) as caught:
        both.restore(path)
    assert caught.value.code == "database_not_empty"


def test_an_audit_and_tokens(live: LiveSystem, kind: str) -> None:
    """The last test here, because a service asks for tokens once there is one."""
    admin = Both(kind, url=live.url, token=_TOKENS.get("admin"))
    made = admin.create_token(f"all_{kind}", "admin")
    if "admin" not in _TOKENS:
        admin.close()
        _TOKENS["admin"] = made.token
        admin = Both(kind, url=live.url, token=made.token)
    assert admin.audit().status == "passed"
    assert admin.audits(1)[0].kind == "full"
    admin.program(f".decl open_{kind}(x: symbol)\n.decl shut_{kind}(x: symbol)")
    reader = admin.create_token(f"r_{kind}", reads=[f"open_{kind}"], rows=10)
    assert f"r_{kind}" in {token.name for token in admin.tokens()}
    with Client(live.url, token=reader.token) as limited:
        assert limited.facts(f"open_{kind}").rows == []
        with pytest.raises((errors.Forbidden, errors.NotFound)):
            limited.facts(f"shut_{kind}")
        with pytest.raises(errors.Forbidden) as caught:
            limited.add(f"open_{kind}", [("a",)])
        assert caught.value.code == "forbidden"
        admin.add(f"open_{kind}", [(str(i),) for i in range(25)])
        # The pages are as small as this token's answers must be.
        assert len(limited.query(f"open_{kind}(x)").rows) == 25
    admin.revoke_token(f"r_{kind}")
    with Client(live.url, token=reader.token) as gone, pytest.raises(errors.Unauthorized):
        gone.rules()
    admin.close()


_TOKENS: dict[str, str] = {}
