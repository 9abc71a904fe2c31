"""Generated requests, right and wrong ones, with tokens of several kinds and without: every answer is one that the
description of the API has, and none is an error of the service. With ZEDLOG_FULL=1 there are more than 10,000 of them.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig

from service.access.tokens import Token, create, new_token
from service.app import create_app
from service.settings import Settings
from tests.full import FULL
from tests.service.conftest import GRAPH, Http
from tests.service.fake import FakeClient
from tests.service.test_openapi import CHECKS

EXAMPLES = 20 if FULL else 4
# Without the many that schemathesis derives from the description by itself.
PHASES = tuple(Phase) if FULL else (Phase.generate,)
WANTED = 10_000
KINDS: dict[str, dict[str, Any] | None] = {
    "nobody": None,
    "reader": {"role": "reader"},
    "narrowed reader": {"role": "reader", "reads": ["tc"], "rows": 10},
    "narrowed writer": {"role": "writer", "reads": ["tc"], "writes": ["edge", "r"]},
    "admin": {"role": "admin"},
}
COUNTED = dict.fromkeys(KINDS, 0)


def app_with_a_graph(require_tokens: bool) -> tuple[Any, FakeClient, Any]:
    database = FakeClient()
    given = Settings(
        wait_timeout=0.01,
        # It takes longer than that to fill the store.
        sparql_bytes=0,
        batch_dir=Path(tempfile.mkdtemp()),
        allowed_hosts={"testserver"},
        access_log="none",
        require_tokens=require_tokens,
    )
    app = create_app(given, database)
    http = Http(create_app(given.model_copy(update={"require_tokens": False}), database))
    assert http.post("/v1/transactions", GRAPH).status_code == 200
    http.close()
    # The tokens come from the tests; a random one is as good as none.
    generation = GenerationConfig(with_security_parameters=False)
    config = SchemathesisConfig(projects=ProjectsConfig(default=ProjectConfig(generation=generation)))
    return app, database, schemathesis.openapi.from_asgi("/openapi.json", app, config=config)


APP, DATABASE, SCHEMA = app_with_a_graph(require_tokens=True)
TOKENS = {
    kind: new_token(kind.replace(" ", "-"), **rights) for kind, rights in KINDS.items() if rights is not None
}


def begin(tokens: list[Token]) -> None:
    """The database as it was, with these tokens and no other."""
    del DATABASE.states[2:]
    DATABASE.jobs.clear()
    DATABASE.tokens.records.clear()
    for token in tokens:
        asyncio.run(create(DATABASE.tokens, token))
    APP.state.service.tokens.forget()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@SCHEMA.parametrize()
@settings(
    max_examples=EXAMPLES,
    phases=PHASES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_described_whoever_asks(case: schemathesis.Case, kind: str) -> None:
    begin([token for token, _ in TOKENS.values()])
    COUNTED[kind] += 1
    headers = {} if kind == "nobody" else {"Authorization": f"Bearer {TOKENS[kind][1]}"}
    answer = case.call(headers=headers)
    case.validate_response(answer, checks=CHECKS)


@pytest.fixture(scope="module", autouse=True)
def report() -> Iterator[None]:
    yield
    print(f"requests: {COUNTED}, {sum(COUNTED.values())} in all")


@pytest.mark.slow
def test_there_were_as_many_as_is_said() -> None:
    if not all(COUNTED.values()):
        pytest.skip("only with the tests above")
    assert sum(COUNTED.values()) >= (WANTED if FULL else 500)
