"""Imports, exports, uploads and jobs over HTTP: what is checked at once, and how a job is shown."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import BadRowsError
from tests.service.conftest import Http, problem
from tests.service.fake import FakeClient


def test_a_job_from_its_submission_to_its_end(http: Http, database: FakeClient) -> None:
    answer = http.post("/v1/imports", {"path": "a.csv", "relation": "edge", "header": True})
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["location"] == job["status_url"] == f"/v1/jobs/{job['job']}"
    assert (job["kind"], job["status"], job["result"], job["problem"]) == ("import", "queued", None, None)
    assert job["request"]["paths"] == ["a.csv"]
    assert job["request"]["format"] == "csv"
    database.jobs.change(
        job["job"], status="running", stages=({"name": "read", "fraction": 0.5, "seconds": 1.0},)
    )
    assert http.get(job["status_url"]).json()["stages"][0]["fraction"] == 0.5
    database.jobs.change(job["job"], status="succeeded", result={"epoch": 3})
    assert http.get(job["status_url"]).json()["result"] == {"epoch": 3}
    assert [j["job"] for j in http.get("/v1/jobs").json()["jobs"]] == [job["job"]]


def test_waiting_answers_with_what_became_of_it(http: Http, database: FakeClient) -> None:
    key = {"idempotency-key": "k"}
    body = {"path": "a.csv", "relation": "edge"}
    job = http.post("/v1/imports?wait=true", body, headers=key).json()
    assert job["status"] == "queued"
    error = BadRowsError("1 row of 2 cannot be imported", rejected=1, samples=[{"line": 1}])
    database.jobs.change(job["job"], status="failed", problem=error.problem())
    refused = problem(http.post("/v1/imports?wait=true", body, headers=key), 422, "bad_rows")
    assert (refused["rejected"], refused["job"]) == (1, job["job"])
    again = http.post("/v1/imports", body, headers=key)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert again.json()["problem"]["code"] == "bad_rows"
    problem(http.post("/v1/imports", {**body, "weight": 2}, headers=key), 422, "idempotency_conflict")


def test_a_dry_run_leaves_the_idempotency_key_of_its_import_free(http: Http) -> None:
    key = {"idempotency-key": "k"}
    body = {"path": "a.csv", "relation": "edge"}
    tried = [http.post("/v1/imports", {**body, "dry_run": True}, headers=key).json()["job"] for _ in range(2)]
    done = [http.post("/v1/imports", body, headers=key).json()["job"] for _ in range(2)]
    assert (tried[0], done[0]) == (tried[1], done[1])
    assert tried[0] != done[0]


def test_events_end_with_the_job(http: Http, database: FakeClient) -> None:
    job = http.post("/v1/exports", {"relation": "edge", "path": "out.csv"}).json()
    database.jobs.change(job["job"], status="succeeded", result={"rows": 3})
    answer = http.get(job["events_url"])
    assert answer.headers["content-type"].startswith("text/event-stream")
    event, id_, data = answer.text.strip().splitlines()
    assert (event, id_) == ("event: end", "id: 2")
    assert json.loads(data.removeprefix("data: "))["result"] == {"rows": 3}
    problem(http.get("/v1/jobs/nothing/events"), 404, "unknown_job")


def test_cancelling(http: Http, database: FakeClient) -> None:
    job = http.post("/v1/exports", {"query": "edge(x, y)", "path": "out"} | {"format": "parquet"}).json()
    assert http.delete(job["status_url"]).json()["status"] == "cancelled"
    problem(http.delete(job["status_url"]), 409, "job_not_cancellable")
    problem(http.delete("/v1/jobs/nothing"), 404, "unknown_job")


def test_an_upload_is_there_once_under_its_digest(http: Http, tmp_path: Path) -> None:
    data = b"a,b\n" * 100
    digest = hashlib.sha256(data).hexdigest()
    for _ in range(2):
        answer = http.post("/v1/uploads?name=e.csv", content=data)
        assert answer.status_code == 201
        assert answer.json() == {"upload": f"{digest}/e.csv", "bytes": 400, "sha256": digest}
    folder = tmp_path / "default" / "uploads"
    assert [p.relative_to(folder) for p in folder.rglob("*") if p.is_file()] == [Path(digest) / "e.csv"]
    job = http.post("/v1/imports", {"upload": f"{digest}/e.csv", "relation": "e"}).json()
    assert (job["request"]["paths"], job["request"]["uploaded"]) == ([f"{digest}/e.csv"], True)
    problem(http.post("/v1/uploads?name=e.csv", content=b"x" * 1001), 413, "body_too_large")
    problem(http.post("/v1/uploads?name=e.csv", content=b""), 400, "invalid_request")
    problem(http.post("/v1/uploads?name=../e.csv", content=b"x"), 400, "invalid_parameter")
    assert len([p for p in folder.rglob("*") if p.is_file()]) == 1


def test_a_batch_directory_that_cannot_be_written(http: Http, tmp_path: Path) -> None:
    (tmp_path / "default").write_text("a file where a folder should be")
    problem(http.post("/v1/uploads?name=e.csv", content=b"x"), 507, "bulk_storage")


IMPORT = {"path": "a.csv", "relation": "edge"}
EXPORT = {"path": "a.csv", "relation": "edge"}
WRONG: list[tuple[str, str, Any, str, str]] = [
    (
        "no path",
        "imports",
        {"relation": "edge"},
        "invalid_request",
        'exactly one of "path", "paths" and "upload"',
    ),
    ("two paths", "imports", {**IMPORT, "paths": ["b.csv"]}, "invalid_request", "one of"),
    ("no upload", "imports", {"upload": "../x", "relation": "e"}, "invalid_request", "is not an upload"),
    (
        "unknown format",
        "imports",
        {**IMPORT, "format": "xml"},
        "invalid_request",
        'format must be "csv", "tsv", "jsonl", "parquet", "orc", "avro", "delta", "iceberg", "ntriples", "nquads", '
        '"turtle", "trig", "rdfxml", "jsonld", "rdf" or "facts", not "xml"',
    ),
    ("no format", "imports", {"path": "a.x", "relation": "e"}, "invalid_request", "does not say the format"),
    (
        "no format out",
        "exports",
        {"path": "a.x", "relation": "e"},
        "invalid_request",
        "parquet, csv, tsv, jsonl, ntriples",
    ),
    ("no relation", "imports", {"path": "a.csv"}, "invalid_request", "the relation that the rows go into"),
    ("no name", "imports", {"path": "a.csv", "relation": "a b"}, "invalid_request", "cannot name a relation"),
    ("misspelt", "imports", {**IMPORT, "wieght": -1}, "invalid_request", 'Did you mean "weight"'),
    ("weight 0", "imports", {**IMPORT, "weight": 0}, "invalid_weight", "changes nothing"),
    (
        "types",
        "imports",
        {**IMPORT, "types": ["text"]},
        "invalid_request",
        'types[0] must be "symbol", "number", "float" or "bool", not "text"',
    ),
    (
        "header of JSON",
        "imports",
        {"path": "a.jsonl", "relation": "e", "header": True},
        "invalid_request",
        "no effect",
    ),
    ("a name without header", "imports", {**IMPORT, "columns": ["x"]}, "invalid_request", "no header"),
    ("delimiter", "imports", {**IMPORT, "delimiter": "::"}, "invalid_request", "one ASCII character"),
    (
        "on_error",
        "imports",
        {**IMPORT, "on_error": "ignore"},
        "invalid_request",
        'on_error must be "fail" or "skip", not "ignore"',
    ),
    (
        "two weights",
        "imports",
        {**IMPORT, "weight": 2, "weight_column": 3},
        "invalid_request",
        "each row its own weight",
    ),
    ("nothing", "exports", {"path": "a.csv"}, "invalid_request", 'exactly one of "relation" and "query"'),
    (
        "both",
        "exports",
        {**EXPORT, "query": "p(x)"},
        "invalid_request",
        'exactly one of "relation" and "query"',
    ),
    ("weights of all", "exports", {**EXPORT, "weights": True}, "invalid_request", "only facts have them"),
    (
        "export format",
        "exports",
        {**EXPORT, "format": "facts"},
        "invalid_request",
        'format must be "parquet", "csv", "tsv", "jsonl", "ntriples", "nquads", "turtle", "trig", "rdfxml" or '
        '"jsonld", not "facts"',
    ),
    (
        "types of Parquet",
        "exports",
        {**EXPORT, "path": "a.parquet", "types": False},
        "invalid_request",
        "no effect",
    ),
    ("epoch", "exports", {**EXPORT, "epoch": -1}, "invalid_request", "number of an epoch"),
    ("a list", "imports", [], "invalid_request", "must be a JSON object"),
    (
        "a column",
        "imports",
        {**IMPORT, "columns": [1, 0]},
        "invalid_request",
        "columns[1] must be a name, or a number",
    ),
    ("a column twice", "imports", {**IMPORT, "columns": [1, 1]}, "invalid_request", "given twice"),
    ("no flag", "imports", {**IMPORT, "header": 1}, "invalid_request", "header must be true or false, not 1"),
    (
        "a list of paths",
        "imports",
        {"paths": "a", "relation": "e"},
        "invalid_request",
        'paths must be a list, not "a"',
    ),
    (
        "no paths",
        "imports",
        {"paths": [], "relation": "e"},
        "invalid_request",
        "paths must not be empty, not []",
    ),
    ("weight", "imports", {**IMPORT, "weight": "1"}, "invalid_weight", 'must be an integer, not "1"'),
    (
        "no text",
        "exports",
        {"path": "a\0.csv", "relation": "e"},
        "invalid_request",
        "cannot be the path of a file",
    ),
    (
        "no query",
        "exports",
        {"path": "a.csv", "query": " "},
        "invalid_request",
        '"query" must be the text of a query',
    ),
    ("no path out", "exports", {"relation": "e"}, "invalid_request", 'the body lacks the field "path"'),
]


@pytest.mark.parametrize(
    ("call", "body", "code", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_a_request_that_is_wrong_makes_no_job(
    http: Http, database: FakeClient, call: str, body: Any, code: str, message: str
) -> None:
    found = problem(http.post(f"/v1/{call}", body), 400, code)
    assert message in found["detail"]
    assert database.jobs.jobs == {}
