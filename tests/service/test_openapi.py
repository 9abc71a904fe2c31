"""The API's description: fresh, complete, and true of what the service answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from service.app import create_app
from service.openapi import FILE, rendered
from service.problems import STATUS
from service.settings import Settings
from tests.service.conftest import GRAPH, Http
from tests.service.fake import FakeClient

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]


def operations(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_file_is_fresh() -> None:
    assert FILE.read_bytes() == rendered(), "openapi/openapi.json is stale: run scripts/openapi"


def test_check_fails_when_the_file_is_stale(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from service import openapi

    monkeypatch.setattr(openapi, "FILE", tmp_path / "openapi.json")
    monkeypatch.setattr(sys, "argv", ["openapi", "--check"])
    assert openapi.main() == 1
    monkeypatch.setattr(sys, "argv", ["openapi"])
    assert openapi.main() == 0
    monkeypatch.setattr(sys, "argv", ["openapi", "--check"])
    assert openapi.main() == 0
    (tmp_path / "openapi.json").write_text("{}")
    assert openapi.main() == 1


def test_the_environment_does_not_change_the_file() -> None:
    command = [sys.executable, "-m", "service.openapi", "--check"]
    environment = {
        "ZEDLOG_DATABASE": "other",
        "ZEDLOG_MAX_LIMIT": "7000",
        "PYTHONPATH": str(FILE.parent.parent),
    }
    assert subprocess.run(command, env=environment, cwd=FILE.parent.parent, check=False).returncode == 0


def test_every_call_is_described(http: Http) -> None:
    for name, operation in operations(http.get("/openapi.json").json()):
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"], name
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], (name, status)
        assert "HTTPValidationError" not in json.dumps(operation), name


def test_examples_of_problems_have_their_status(http: Http) -> None:
    statuses = {error.code: status for error, status in STATUS.items()}
    for name, operation in operations(http.get("/openapi.json").json()):
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                for code in response["content"]["application/problem+json"]["examples"]:
                    assert statuses[code] == int(status), (name, code)


def test_every_type_of_problem_explains_itself(http: Http) -> None:
    for entry in http.get("/problems").json():
        assert http.get(entry["type"]).json() == entry
        assert entry["description"].endswith(".")
    assert http.get("/problems/nothing").status_code == 404


def app_with_a_graph() -> tuple[Any, FakeClient]:
    database = FakeClient()
    # Feeds end at once: a call is over when its whole answer is there.
    app = create_app(
        Settings(
            wait_timeout=0.01,
            batch_dir=Path(tempfile.mkdtemp()),
            allowed_hosts={"testserver"},
            access_log="none",
            feed_seconds=0.02,
            # A store is not ready within the wait above, which is so short for other calls.
            sparql_bytes=0,
        ),
        database,
    )
    http = Http(app)
    assert http.post("/v1/transactions", GRAPH).status_code == 200
    http.close()
    return app, database


@schemathesis.serializer("application/x-ndjson")
def lines_of_json(context: Any, value: Any) -> bytes:
    """Whatever is generated, as one line."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@schemathesis.serializer("application/sparql-query", "application/sparql-update")
def text_of_sparql(context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


APP, DATABASE = app_with_a_graph()
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)


@SCHEMA.parametrize()
@settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_described(case: schemathesis.Case) -> None:
    """Generated requests, right and wrong ones: each answer has a status, headers and a body that are
    described."""
    del DATABASE.states[2:]
    DATABASE.jobs.clear()
    case.call_and_validate(checks=CHECKS)


def test_every_reference_leads_to_something() -> None:
    description = json.loads(FILE.read_text())
    for reference in re.findall(r'"\$ref": ?"#/([^"]+)"', FILE.read_text()):
        found = description
        for step in reference.split("/"):
            assert step in found, reference
            found = found[step]


def test_every_tag_is_described() -> None:
    description = json.loads(FILE.read_text())
    used = {tag for path in description["paths"].values() for call in path.values() for tag in call["tags"]}
    assert used == {tag["name"] for tag in description["tags"]}
