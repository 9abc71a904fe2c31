"""Waiting for a job, Ctrl-C while waiting, and what the commands say of it; without a service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from service.bulk_models import ImportBody
from service.cli import audit, imports, jobs
from service.cli.client import Refused
from service.cli.main import run


def job(status: str, **fields: Any) -> dict[str, Any]:
    return {
        "job": "j1",
        "kind": "import",
        "status": status,
        "cancelling": False,
        "request": {"paths": ["e.csv"], "relation": "e"},
        "stages": [{"name": "read", "fraction": 0.5, "seconds": 1.0}],
        "started": 1.0,
        "finished": None,
        "result": None,
        "problem": None,
        "status_url": "/v1/jobs/j1",
        **fields,
    }


class Client:
    """Answers one thing after the other; an exception among them is raised."""

    def __init__(self, *answers: Any, refuse: bool = False) -> None:
        self.answers = list(answers)
        self.deleted = 0
        self.refuse = refuse

    def get(self, path: str) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return dict(answer)

    def delete(self, path: str) -> dict[str, Any]:
        self.deleted += 1
        if self.refuse:
            raise Refused(409, {"detail": "its transaction is in the log", "code": "job_not_cancellable"})
        return job("running", cancelling=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_POLL_SECONDS", 0.0)


RESULT = {
    "rows": 1_000,
    "tuples": 900,
    "rejected": 1,
    "rejects": "/b/rejects/j1.jsonl",
    "samples": [{"file": "e.csv", "row": 7, "reason": "not 2 fields"}],
    "seconds": 0.5,
    "epoch": 3,
    "changes": {"e": {"inserted": 900, "deleted": 0}},
}


def test_it_waits_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(job("running"), job("succeeded", result=RESULT))
    jobs.report(jobs.follow(client, job("queued")))  # type: ignore[arg-type]
    seen = capsys.readouterr()
    assert "imported 999 rows, 900 distinct tuples, in 0.5 s, epoch 3" in seen.out
    assert "e: +900 -0" in seen.out
    assert "1 row left out" in seen.err
    assert "e.csv, row 7: not 2 fields" in seen.err


def test_what_an_export_left_out_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    result = {"rows": 2, "left_out": 3, "files": 1, "bytes": 9, "epoch": 7, "path": "/x/t.nt", "seconds": 0.5}
    jobs.report(job("succeeded", kind="export", result=result))
    seen = capsys.readouterr()
    assert "exported 2 tuples of epoch 7" in seen.out
    assert "3 generalised triples left out" in seen.err
    jobs.report(job("succeeded", kind="export", result={**result, "left_out": 0}))
    assert "left out" not in capsys.readouterr().err


def test_a_rate_is_that_of_many_rows_once_spark_has_started(capsys: pytest.CaptureFixture[str]) -> None:
    stages = [
        {"name": name, "fraction": 1.0, "seconds": took} for name, took in (("spark", 8.0), ("read", 2.0))
    ]
    result = {**RESULT, "rows": 500_001, "seconds": 10.0}
    jobs.report(job("succeeded", result=result, stages=stages))
    jobs.report(job("succeeded", result={**result, "rows": 10_000, "seconds": 2.0}, stages=stages[1:]))
    jobs.report(job("succeeded", result={**result, "rows": 9_999, "changes": {}}, stages=stages))
    seen = " ".join(capsys.readouterr().out.split())
    assert "in 10.0 s, 8.0 s of them Spark's start (250,000 rows/s), epoch 3" in seen
    assert "in 2.0 s (5,000 rows/s), epoch 3" in seen
    assert seen.count("rows/s") == 2
    assert seen.endswith("in 10.0 s, 8.0 s of them Spark's start, epoch 3 no relation changed")


def test_the_first_interrupt_cancels_and_the_second_leaves_it(capsys: pytest.CaptureFixture[str]) -> None:
    cancelled = job("cancelled", problem={"status": 409, "code": "job_cancelled", "detail": "cancelled"})
    client = Client(KeyboardInterrupt(), job("running"), cancelled)
    done = jobs.follow(client, job("running"))  # type: ignore[arg-type]
    assert (client.deleted, done["status"]) == (1, "cancelled")
    with pytest.raises(Refused):
        jobs.report(done)
    client = Client(KeyboardInterrupt(), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        jobs.follow(client, job("running"))  # type: ignore[arg-type]
    assert client.deleted == 1
    assert "zedlog jobs wait j1" in capsys.readouterr().err


def test_an_interrupt_that_comes_too_late_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(KeyboardInterrupt(), job("succeeded", result={**RESULT, "rejected": 0}), refuse=True)
    assert jobs.follow(client, job("running"))["status"] == "succeeded"  # type: ignore[arg-type]
    assert "in the log" in capsys.readouterr().err


def test_times_and_sizes_in_plain_words() -> None:
    assert [jobs.seconds(s) for s in (0.04, 59.94, 61, 7260)] == ["0.0 s", "59.9 s", "1 min 1 s", "2 h 1 min"]
    assert [jobs.size(b) for b in (0, 999, 1_500, 2_500_000)] == ["0 bytes", "999 bytes", "1.5 kB", "2.5 MB"]


@pytest.mark.parametrize(
    ("files", "told"),
    [(["a.nt.gz"], "ntriples"), (["facts/"], "facts"), (["folder"], None), (["a.csv"], "csv")],
)
def test_the_format_is_told_by_the_name(files: list[str], told: str | None) -> None:
    assert imports._told_by_name(files) == told


@pytest.mark.parametrize("command", [["import"], ["export"]])
def test_the_commands_teach_with_examples(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert run([*command, "--help"]) == 0
    assert f"• zedlog {command[0]} " in capsys.readouterr().out


def test_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # the message holds a path
    check: Callable[..., int] = lambda *words: run(list(words))  # noqa: E731
    assert check("import") == 2
    assert check("import", "a.csv", "b.csv", "--upload", "--relation", "e") == 2
    assert check("import", str(tmp_path / "none.csv"), "--upload", "--relation", "e") == 2
    assert check("import", "a.csv", "--relation", "e", "--delimiter", "::") == 2
    assert check("export", "tc") == 2
    assert "cannot be read" in capsys.readouterr().err


def test_an_import_says_why_and_for_which_source(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []

    class Service:
        def __init__(self, url: str) -> None:
            pass

        def __enter__(self) -> Service:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def post(self, path: str, body: dict[str, Any], *, key: str | None = None) -> dict[str, Any]:
            assert path == "/v1/imports"
            sent.append(ImportBody.model_validate(body).request().as_json())
            return job("queued")

    monkeypatch.setattr(imports, "ServiceClient", Service)
    command = ["import", "e.csv", "--relation", "e", "--detach"]
    assert run([*command, "--source", "hr", "--message", "of January"]) == 0
    assert run(command) == 0
    assert (sent[0]["source"], sent[0]["message"]) == ("hr", "of January")
    assert {"source", "message"}.isdisjoint(sent[1])


def found(status: str, **fields: Any) -> dict[str, Any]:
    return {
        "audit": "a1",
        "status": status,
        "status_url": "/v1/audits/a1",
        "report": None,
        "why": None,
        **fields,
    }


class Auditing:
    """A service that has no engine for the first `without` questions after it, and then audits."""

    without = 0
    asked: ClassVar[list[str]] = []

    def __init__(self, url: str) -> None:
        self.asked.clear()

    def __enter__(self) -> Auditing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return found("queued")

    def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if path == "/readyz":
            if self.asked.count(path) > self.without:
                return {"engine": "running"}
            raise Refused(503, {"detail": 'no engine serves the database "x" now; it is stopped'})
        return found("failed", why="it was enough") if len(self.asked) > 8 else found("queued")


@pytest.mark.parametrize("without", [0, 9])
def test_waiting_for_an_audit_without_an_engine_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], without: int
) -> None:
    monkeypatch.setattr(audit, "ServiceClient", Auditing)
    monkeypatch.setattr(audit, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(audit, "_ENGINE_SECONDS", 0.0)
    monkeypatch.setattr(Auditing, "without", without)
    assert run(["audit", "--wait"]) == 1
    seen = capsys.readouterr()
    assert "it was enough" in seen.out
    assert seen.err.count("no engine serves the database") == (1 if without else 0)
    assert ("'zedlog engine' starts one" in seen.err) == bool(without)
    # It goes on waiting, and does not ask again what has been said.
    assert Auditing.asked.count("/v1/audits/a1") >= 4
    assert (Auditing.asked.count("/readyz") == 1) == bool(without)
