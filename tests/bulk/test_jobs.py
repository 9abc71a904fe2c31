"""Jobs in a running system: progress, one epoch, replay after a crash, cancellation, refusals, cleaning up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.errors import SparkUnavailableError
from engine.spark.session.java import java_home
from service.cli.main import run
from tests.full import full
from tests.live import LiveSystem
from tests.waiting import until


@pytest.fixture(scope="module")
def bulk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    """A system of its own, with roots to read and write."""
    try:
        java_home()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("bulk")
    (folder / "in").mkdir()
    environment = {
        "IMPORT_ROOT": folder / "in",
        "EXPORT_ROOT": folder / "out",
        "BATCH_DIR": folder / "batches",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, path in environment.items():
            patch.setenv(f"ZEDLOG_{name}", str(path))
        with LiveSystem(folder) as system:
            yield system


def ended(client: httpx.Client, job: dict[str, Any]) -> dict[str, Any]:
    """Wait until the job has ended."""
    return seen(client, job, lambda now: now["status"] not in ("queued", "running"))


def seen(client: httpx.Client, job: dict[str, Any], fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until the job is as it should be."""
    now = job

    def look() -> bool:
        nonlocal now
        now = client.get(job["status_url"]).json()
        return fits(now)

    until(look, lambda: f"another state of {now}", 240)
    return now


def running(client: httpx.Client, job: dict[str, Any], stage: str) -> dict[str, Any]:
    """Wait until the job is in a stage."""
    found = seen(
        client,
        job,
        lambda now: (
            now["status"] not in ("queued", "running") or any(s["name"] == stage for s in now["stages"])
        ),
    )
    assert found["status"] in ("queued", "running"), found
    return found


def edges(bulk: LiveSystem, name: str, number: int) -> int:
    """A file of `number` edges, every third one twice; returns how many rows it has."""
    rows = [f"a{i},b{i}\n" * (2 if i % 3 == 0 else 1) for i in range(number)]
    (bulk.folder / "in" / name).write_text("".join(rows))
    return number + (number + 2) // 3


def batches(bulk: LiveSystem) -> list[Path]:
    return sorted((bulk.folder / "batches" / "test").glob("j*"))


def test_an_import_is_one_epoch_and_comes_back_from_an_export(bulk: LiveSystem) -> None:
    rows = edges(bulk, "e.csv", 1000)
    with bulk.client() as client:
        body = {"path": "e.csv", "relation": "e", "types": ["symbol", "symbol"]}
        job = client.post("/v1/imports", json=body, headers={"idempotency-key": "one"}).json()
        job = ended(client, job)
        assert job["status"] == "succeeded", job["problem"]
        result = job["result"]
        assert (result["rows"], result["tuples"], result["rejected"]) == (rows, 1000, 0)
        assert result["changes"] == {"e": {"inserted": 1000, "deleted": 0}}
        assert [s["name"] for s in job["stages"]] == ["spark", "look", "read", "append", "apply"]
        assert all(s["fraction"] == 1.0 for s in job["stages"])
        again = client.post("/v1/imports", json=body, headers={"idempotency-key": "one"})
        assert (again.json()["job"], again.headers["idempotency-replayed"]) == (job["job"], "true")
        weights = client.get("/v1/relations/e/facts?domain=asserted&limit=1000").json()["weights"]
        assert (sum(weights), set(weights)) == (rows, {1, 2})
        asked = {
            "relation": "e",
            "path": "e.jsonl",
            "domain": "asserted",
            "weights": True,
            "epoch": result["epoch"],
        }
        done = ended(client, client.post("/v1/exports", json=asked).json())
        assert done["result"]["rows"] == 1000, done
        (bulk.folder / "in" / "e.jsonl").write_bytes((bulk.folder / "out" / "e.jsonl").read_bytes())
        body = {"path": "e.jsonl", "relation": "copy", "weight_column": "weight"}
        assert ended(client, client.post("/v1/imports", json=body).json())["status"] == "succeeded"
        query = {"query": "e(x, y), !copy(x, y)"}
        asked = {**query, "path": "none.csv"}
        assert ended(client, client.post("/v1/exports", json=asked).json())["result"]["rows"] == 0
        assert client.post("/v1/query", json={"query": "copy(x, y), !e(x, y)"}).json()["tuples"] == []
        copied = client.get("/v1/relations/copy/facts?domain=asserted&limit=1000").json()
        assert sum(copied["weights"]) == rows


def test_a_dry_run_leaves_nothing(bulk: LiveSystem) -> None:
    edges(bulk, "d.csv", 10)
    with bulk.client() as client:
        before, files = client.get("/v1/relations").json(), batches(bulk)
        body = {"path": "d.csv", "relation": "d", "types": ["symbol", "symbol"], "dry_run": True}
        job = ended(client, client.post("/v1/imports", json=body).json())
        assert job["result"]["changes"] == {"d": {"inserted": 10, "deleted": 0}}
        assert client.get("/v1/relations").json() == before
        assert batches(bulk) == files


def test_a_transaction_that_is_refused_fails_the_job(bulk: LiveSystem) -> None:
    edges(bulk, "f.csv", 5)
    with bulk.client() as client:
        files = batches(bulk)
        body = {"path": "f.csv", "relation": "f", "types": ["symbol", "symbol"], "weight": -1}
        job = ended(client, client.post("/v1/imports", json=body).json())
        assert (job["status"], job["problem"]["code"]) == ("failed", "negative_weight")
        assert batches(bulk) == files


def test_files_that_are_damaged_or_outside(bulk: LiveSystem) -> None:
    import gzip

    data = gzip.compress(b"".join(b"<a%d> <b> <c> .\n" % i for i in range(5000)))
    (bulk.folder / "in" / "cut.nt.gz").write_bytes(data[: len(data) // 2])
    with bulk.client() as client:
        for path, code in (
            ("cut.nt.gz", "source_unreadable"),
            ("missing.nt", "source_unreadable"),
            ("../in.nt", "path_not_allowed"),
            ("s3a://bucket/x.nt", "path_not_allowed"),
        ):
            job = ended(client, client.post("/v1/imports", json={"path": path}).json())
            assert (job["status"], job["problem"]["code"]) == ("failed", code), job
        answer = client.post("/v1/exports?wait=true", json={"relation": "nothing", "path": "n.csv"})
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_relation")


def test_the_command_line_imports_and_exports(
    bulk: LiveSystem, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEDLOG_URL", bulk.url)
    file = bulk.folder / "mine.csv"
    file.write_text("x;y\na;1\na;1\nb;zwei\n")
    options = ["--relation", "cli", "--header", "--delimiter", "semicolon", "--types", "symbol,number"]
    assert run(["import", str(file), *options, "--upload"]) == 1
    assert "mine.csv, row 3: column 2 (y) holds number, but 'zwei' is none" in capsys.readouterr().err
    assert run(["import", str(file), *options, "--upload", "--skip"]) == 0
    seen = capsys.readouterr()
    assert "imported 2 rows, 1 distinct tuple, in " in seen.out
    assert "cli: +1 -0" in seen.out
    assert "1 row left out" in seen.err
    assert run(["export", "cli(x, y), y > 0", "cli.csv"]) == 0
    assert "exported 1 tuple of epoch" in capsys.readouterr().out
    assert (bulk.folder / "out" / "cli.csv").read_text() == '"x:symbol","y:number"\n"a","1"\n'
    assert run(["export", "cli", "cli.csv"]) == 1
    assert "target_exists" in capsys.readouterr().err
    assert run(["jobs", "list"]) == 0
    assert "succeeded" in capsys.readouterr().out


@full
def test_an_engine_killed_in_the_middle_resumes(bulk: LiveSystem) -> None:
    """Killed while Spark reads: nothing is half there, and the next engine does it from the beginning, once."""
    rows = edges(bulk, "k.csv", 60_000)
    with bulk.client() as client:
        body = {"path": "k.csv", "relation": "k", "types": ["symbol", "symbol"]}
        job = client.post("/v1/imports", json=body).json()
        running(client, job, "read")
        bulk.kill("engine")
        assert "k" not in [r["relation"] for r in client.get("/v1/relations").json()["relations"]]
        bulk.start("engine")
        job = ended(client, job)
        assert job["status"] == "succeeded", job["problem"]
        assert (job["result"]["rows"], job["result"]["tuples"]) == (rows, 60_000)
        assert client.get("/v1/relations/k").json()["counts"]["asserted"] == 60_000


def test_a_cancelled_job_leaves_nothing(bulk: LiveSystem) -> None:
    edges(bulk, "c.csv", 200_000)
    with bulk.client() as client:
        files, epoch = batches(bulk), client.get("/readyz").json()["epoch"]
        body = {"path": "c.csv", "relation": "c", "types": ["symbol", "symbol"]}
        first = client.post("/v1/imports", json=body).json()
        second = client.post("/v1/imports", json=body).json()
        assert client.delete(second["status_url"]).json()["status"] == "cancelled"
        running(client, first, "read")
        assert client.delete(first["status_url"]).status_code == 202
        first = ended(client, first)
        assert (first["status"], first["problem"]["code"]) == ("cancelled", "job_cancelled")
        assert client.delete(first["status_url"]).status_code == 409
        assert (batches(bulk), client.get("/readyz").json()["epoch"]) == (files, epoch)


@full
def test_a_log_entry_is_replayed_from_its_files(bulk: LiveSystem) -> None:
    """The transaction is in the log, and the engine that wrote it is gone before it could apply it."""
    edges(bulk, "l.csv", 500)
    with bulk.client() as client:
        body = {"path": "l.csv", "relation": "l", "types": ["symbol", "symbol"]}
        job = client.post("/v1/imports", json=body).json()
        running(client, job, "append")
        bulk.kill("engine")
        bulk.start("engine")
        job = ended(client, job)
        assert job["status"] == "succeeded", job["problem"]
        weights = client.get("/v1/relations/l/facts?domain=asserted&limit=1000").json()["weights"]
        assert sum(weights) == 500 + 167
    assert os.path.isdir(bulk.folder / "batches" / "test" / job["job"])
