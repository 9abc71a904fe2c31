"""Audits over HTTP: who sees what, and what readiness and metrics say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.audit.report import Report, in_words
from engine.storage.audits import Audit, new_audit
from service.app import create_app
from service.audits import audit_document
from service.principal import Principal
from service.settings import Settings
from tests.service.conftest import Http
from tests.service.fake import FakeClient


def ended(status: Any = "differs", kind: Any = "full") -> Audit:
    report = Report(7)
    if status == "differs":
        report.add("support", "memory", "has another support", "tc", ("a", 1), 1, 5)
        report.add("weight", "memory", "has another weight", "edge", ("a", "b"), 1, 2)
        report.add("program", "memory", "the rule r1 is another one", None, None, "a", "b")
        report.leave_out("the digests of edge")
    told = None if status == "failed" else report.to_json() | {"seconds": 1.5}
    audit = replace(new_audit(kind, "request"), status=status, started=1.0, finished=2.0, report=told)
    return replace(audit, why="its process was ended by signal 9") if status == "failed" else audit


@pytest.fixture
def database() -> FakeClient:
    return FakeClient()


@pytest.fixture
def http(database: FakeClient, tmp_path: Path) -> Iterator[Http]:
    made = Http(create_app(Settings(batch_dir=tmp_path), database))
    yield made
    made.close()


def test_an_audit_is_asked_for_and_shown(http: Http, database: FakeClient) -> None:
    asked = http.post("/v1/audits")
    assert asked.status_code == 202
    name = asked.json()["audit"]
    assert asked.headers["location"] == f"/v1/audits/{name}"
    assert (asked.json()["status"], asked.json()["report"]) == ("queued", None)
    assert http.post("/v1/audits").json()["audit"] == name, "one waits already"
    database.audits.end(replace(ended(), id=name))
    shown = http.get(f"/v1/audits/{name}").json()
    assert (shown["status"], shown["report"]["differing"], shown["report"]["withheld"]) == ("differs", 3, 0)
    assert shown["report"]["differences"][0]["tuple"] == ["a", 1]
    assert [one["audit"] for one in http.get("/v1/audits").json()["audits"]] == [name]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/audits/a0", 404, "unknown_audit"),
        ("GET", "/v1/audits?limit=0", 400, "invalid_parameter"),
        ("GET", "/v1/audits?limit=x", 400, "invalid_parameter"),
        ("POST", "/v1/audits?deep=true", 400, "invalid_parameter"),
        ("DELETE", "/v1/audits", 405, "method_not_allowed"),
    ],
)
def test_bad_input(http: Http, method: str, path: str, status: int, code: str) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_redis_is_away(http: Http, database: FakeClient) -> None:
    database.redis_away = True
    assert http.post("/v1/audits").json()["code"] == "storage_unavailable"
    assert http.get("/v1/audits").json()["code"] == "storage_unavailable"


def test_roles_are_declared(http: Http) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    assert paths["/v1/audits"]["post"]["x-zedlog-role"] == "admin"
    assert paths["/v1/audits"]["get"]["x-zedlog-role"] == "reader"
    assert paths["/v1/audits/{audit_id}"]["get"]["x-zedlog-role"] == "reader"


def test_a_reader_sees_no_tuple_of_a_relation_that_it_may_not_read() -> None:
    reader = Principal("ann", "reader", frozenset({"tc"}))
    report = audit_document(ended(), reader)["report"]
    assert [one["relation"] for one in report["differences"]] == ["tc"]
    assert (report["differing"], report["withheld"]) == (3, 2)
    assert "edge" not in str(report)
    assert "signal" not in str(audit_document(ended("failed"), reader))
    assert audit_document(ended(), Principal("bob", "reader"))["report"]["withheld"] == 0


def test_readiness_and_metrics_tell_the_last_results(http: Http, database: FakeClient) -> None:
    assert http.get("/readyz").json()["audits"] == {"full": None, "start": None}
    assert "zedlog_audit_passed{" not in http.get("/metrics").text
    database.audits.end(ended())
    database.audits.end(ended("passed", "start"))
    answer = http.get("/readyz")
    assert answer.status_code == 200, "a difference does not make the service unready"
    last = answer.json()["audits"]
    assert (last["full"]["status"], last["full"]["differing"], last["full"]["epoch"]) == ("differs", 3, 7)
    assert last["start"]["status"] == "passed"
    text = http.get("/metrics").text
    assert 'zedlog_audit_passed{kind="full"} 0.0' in text
    assert 'zedlog_audit_passed{kind="start"} 1.0' in text
    assert 'zedlog_audit_differences{kind="full"} 3.0' in text
    assert 'zedlog_audit_finished_timestamp_seconds{kind="full"} 2.0' in text
    database.audits.end(ended("failed"))
    assert 'zedlog_audit_passed{kind="full"} 0.0' in http.get("/metrics").text
    # Anybody may ask for readiness, so the reason is told only by the audit itself.
    told = http.get("/readyz").json()["audits"]["full"]
    assert (told["status"], "why" in told) == ("failed", False)
    assert http.get(f"/v1/audits/{told['id']}").json()["why"] == "its process was ended by signal 9"


def test_relations_have_digests(http: Http) -> None:
    http.post("/v1/facts", {"relation": "edge", "tuples": [["a", "b"]]})
    listed = http.get("/v1/relations").json()["relations"]
    assert [len(one["digest"]) for one in listed] == [32]
    assert http.get("/v1/relations/edge").json()["digest"] == listed[0]["digest"]


def test_a_difference_in_words() -> None:
    report = ended().report
    assert report is not None
    assert [in_words(one) for one in report["differences"]] == [
        'in memory: tc("a", 1): has another support; expected 1, found 5',
        'in memory: edge("a", "b"): has another weight; expected 1, found 2',
        'in memory: the rule r1 is another one; expected "a", found "b"',
    ]
