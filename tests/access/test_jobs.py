"""Bulk jobs under narrowed rights: what may be submitted, and whose jobs are seen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.access.conftest import Guarded
from tests.service.conftest import problem

SECRET = "canary-7f3a"
UPLOAD = "a" * 64


@pytest.fixture
def jobs(guarded: Guarded) -> Guarded:
    """A narrowed reader and writer, and jobs of the admin with the secret in them."""
    guarded.make("narrow", "reader", reads=["tc", "edge"])
    guarded.make("pen", "writer", reads=["tc"], writes=["edge"])
    return guarded


def submitted(service: Guarded, kind: str, body: dict[str, Any], **end: Any) -> str:
    answer = service.call("admin", "POST", f"/v1/{kind}s", json=body)
    assert answer.status_code == 202, answer.text
    name: str = answer.json()["job"]
    service.database.jobs.change(name, **end)
    return name


def seen(service: Guarded, who: str, job: str) -> Any:
    """The job as it is listed, which is as it is shown; None: it is not."""
    listed = {one["job"]: one for one in service.call(who, "GET", "/v1/jobs").json()["jobs"]}
    shown = service.call(who, "GET", f"/v1/jobs/{job}")
    events = service.call(who, "GET", f"/v1/jobs/{job}/events")
    if job not in listed:
        problem(shown, 404, "unknown_job")
        problem(events, 404, "unknown_job")
        return None
    assert shown.json() == listed[job]
    return shown.json()


DONE = {"status": "succeeded", "finished": 1.0, "result": {"rows": 1, "path": SECRET}}


@pytest.mark.parametrize(
    ("kind", "body", "visible"),
    [
        ("export", {"relation": "tc", "path": "a.csv"}, True),
        ("export", {"relation": "vault", "path": "a.csv"}, False),
        ("export", {"query": "tc(x, y), edge(y, _)", "path": "a.csv"}, True),
        ("export", {"query": "tc(x, y), !vault(y, _)", "path": "a.csv"}, False),
        ("import", {"relation": "edge", "path": "a.csv"}, True),
        ("import", {"relation": "vault", "path": "a.csv"}, False),
        ("import", {"path": "a.nt"}, False),
        ("import", {"path": "edge.facts"}, False),
        ("import", {"upload": f"{UPLOAD}/edge.facts.gz"}, True),
        ("import", {"upload": f"{UPLOAD}/edge.vault.facts"}, False),
    ],
)
def test_a_job_is_seen_by_those_who_may_read_all_of_it(
    kind: str, body: dict[str, Any], visible: bool, jobs: Guarded
) -> None:
    job = submitted(jobs, kind, body, **DONE)
    assert (seen(jobs, "narrow", job) is not None) == visible
    assert seen(jobs, "admin", job) is not None


def test_rows_of_a_file_are_for_those_who_may_read_its_relation(jobs: Guarded) -> None:
    result = {
        "rows": 2,
        "samples": [{"text": SECRET}],
        "rejects": "x.jsonl",
        "changes": {"edge": {"inserted": 1, "deleted": 0}, "vault": {"inserted": 1, "deleted": 0}},
        "cost": {"derivations": 5},
        "reason": "bootstrapped {vault}",
    }
    job = submitted(
        jobs, "import", {"relation": "edge", "path": "a.csv"}, status="succeeded", finished=1.0, result=result
    )
    reader, writer = (seen(jobs, who, job)["result"] for who in ("narrow", "pen"))
    assert reader["samples"] == [{"text": SECRET}]
    assert writer == {"rows": 2, "changes": {}, "cost": {}, "reason": ""}
    assert "vault" not in str(reader)
    assert seen(jobs, "admin", job)["result"] == result


def test_why_a_job_failed_is_left_out(jobs: Guarded) -> None:
    failed = {"code": "bad_rows", "message": f"the row {SECRET}", "rows": [SECRET]}
    job = submitted(
        jobs, "import", {"relation": "edge", "path": "a.csv"}, status="failed", finished=1.0, problem=failed
    )
    assert SECRET not in str(seen(jobs, "pen", job))
    assert seen(jobs, "pen", job)["problem"]["code"] == "bad_rows"
    assert SECRET in str(seen(jobs, "admin", job))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/imports", {"relation": "edge", "path": "a.csv"}),
        ("/v1/imports", {"relation": "tc", "upload": f"{UPLOAD}/a.csv"}),
        ("/v1/imports", {"upload": f"{UPLOAD}/a.nt"}),
        ("/v1/imports", {"upload": f"{UPLOAD}/edge.tc.facts"}),
        ("/v1/imports", {"upload": f"{UPLOAD}/tc.facts"}),
        ("/v1/exports", {"relation": "vault", "path": "a.csv"}),
        ("/v1/exports", {"query": "n = count : { vault(_) }", "path": "a.csv"}),
        ("/v1/exports", {"query": "n = ord(\"x\")", "path": "a.csv"}),
        ("/v1/exports", {"relation": "tc", "path": "a.csv", "overwrite": True}),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_beyond_its_rights_is_not_submitted(path: str, body: dict[str, Any], jobs: Guarded) -> None:
    problem(jobs.call("pen", "POST", path, json=body), 403, "forbidden")
    assert jobs.database.jobs.jobs == {}
    assert jobs.call("writer", "POST", path, json=body).status_code == 202


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/imports", {"relation": "edge", "upload": f"{UPLOAD}/a.csv"}),
        ("/v1/imports", {"upload": f"{UPLOAD}/edge.facts"}),
        ("/v1/exports", {"relation": "tc", "path": "a.csv"}),
    ],
    ids=str,
)
def test_what_is_within_its_rights_is(path: str, body: dict[str, Any], jobs: Guarded) -> None:
    assert jobs.call("pen", "POST", path, json=body).status_code == 202


def test_a_job_that_is_not_seen_is_not_cancelled(jobs: Guarded) -> None:
    hidden = submitted(jobs, "export", {"relation": "vault", "path": "a.csv"})
    problem(jobs.call("pen", "DELETE", f"/v1/jobs/{hidden}"), 404, "unknown_job")
    assert jobs.database.jobs.jobs[hidden].status == "queued"
    known = submitted(jobs, "export", {"relation": "tc", "path": "a.csv"})
    assert jobs.call("pen", "DELETE", f"/v1/jobs/{known}").status_code == 202
