"""Circuit, health, metrics, and the app itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.storage.indexes import IndexStats
from engine.storage.outcome import Running
from service.app import create_app
from service.models import Epochs, Readiness
from service.projection import ProjectionCache
from service.settings import Settings
from tests.service.conftest import Http, problem
from tests.service.fake import FakeClient


class TestCircuit:
    def test_json_names_the_strata_of_the_rules(self, graph: Http) -> None:
        response = graph.get("/v1/circuit")
        assert response.headers["zedlog-epoch"] == "1"
        strata = response.json()["strata"]
        recursive = [s for s in strata if s["recursive"]]
        assert [s["relations"] for s in recursive] == [["tc"]]
        assert len(recursive[0]["rules"]) == 2

    @pytest.mark.parametrize(
        ("query", "accept", "kind"),
        [
            ("?format=mermaid", "*/*", "text/vnd.mermaid"),
            ("", "text/vnd.mermaid", "text/vnd.mermaid"),
            ("", "text/plain", "text/plain"),
        ],
    )
    def test_mermaid(self, graph: Http, query: str, accept: str, kind: str) -> None:
        response = graph.get(f"/v1/circuit{query}", headers={"accept": accept})
        assert response.headers["content-type"].split(";")[0] == kind
        assert response.text.startswith(("flowchart", "graph"))
        assert "tc" in response.text

    def test_other_formats(self, graph: Http) -> None:
        problem(graph.get("/v1/circuit?format=dot"), 400, "invalid_parameter")
        problem(graph.get("/v1/circuit", headers={"accept": "image/png"}), 406, "not_acceptable")

    def test_it_shows_which_strata_have_a_pivot(self, graph: Http) -> None:
        """The first column of tc goes from body to head as it is; of the edges nothing is recursive."""
        strata = graph.get("/v1/circuit").json()["strata"]
        assert {tuple(s["relations"]): s["pivot"] for s in strata} == {("edge",): None, ("tc",): {"tc": 0}}
        assert "pivot: column 1 of tc" in graph.get("/v1/circuit?format=mermaid").text

    def test_it_says_where_each_stratum_is(self, graph: Http, monkeypatch: pytest.MonkeyPatch) -> None:
        def told() -> dict[tuple[str, ...], tuple[str | None, str, int]]:
            strata = graph.get("/v1/circuit").json()["strata"]
            return {tuple(s["relations"]): (s["place"], s["why"], s["tuples"]) for s in strata}

        here = "it is in the engine process"
        assert told() == {("edge",): ("resident", here, 3), ("tc",): ("resident", here, 4)}
        monkeypatch.setattr("tests.service.fake.AWAY", {"tc": "it is large"})
        assert told() == {("edge",): ("resident", here, 3), ("tc",): ("spark", "it is large", 4)}
        assert (
            "recursive stratum 1; pivot: column 1 of tc; on Spark"
            in graph.get("/v1/circuit?format=mermaid").text
        )
        monkeypatch.setattr("tests.service.fake.AWAY", {"*": "as asked"})
        assert {place for place, _, _ in told().values()} == {"spark"}
        monkeypatch.setattr("tests.service.fake.AWAY", None)
        assert told()["tc",] == (None, "the version that published the epoch did not say", 4)

    def test_as_of_shows_an_older_circuit(self, graph: Http) -> None:
        graph.post("/v1/rules", {"rule": "p(x) :- tc(x, x)."})
        assert "p" in str([s["relations"] for s in graph.get("/v1/circuit").json()["strata"]])
        old = graph.get("/v1/circuit?as_of=1").json()["strata"]
        assert ["p"] not in [s["relations"] for s in old]


RUNNING = Running("1735689600000-0", "1735689600002-0", 1735689600.5, 2.25, ("tc",))
FAULT = {
    "time": 1735689601.5,
    "first": "1735689600000-0",
    "last": "1735689600000-0",
    "refused": True,
    "message": "a fault of Zedlog itself: AssertionError",
}


class TestActivity:
    def test_what_runs_and_the_faults_are_told(self, graph: Http, database: FakeClient) -> None:
        for path, model in (("/readyz", Readiness), ("/v1/epochs", Epochs)):
            quiet = graph.get(path).json()
            assert (quiet["running"], quiet["faults"], quiet["last_fault"]) == (None, 0, None)
            model.model_validate(quiet)
        database.activity = {"evaluating": RUNNING, "faults": 3, "fault": FAULT}
        for path, model in (("/readyz", Readiness), ("/v1/epochs", Epochs)):
            busy = graph.get(path).json()
            assert busy["running"] == {
                "first": "1735689600000-0",
                "last": "1735689600002-0",
                "since": 1735689600.5,
                "seconds": 2.25,
                "relations": ["tc"],
            }
            assert (busy["faults"], busy["last_fault"]) == (3, FAULT)
            model.model_validate(busy)

    def test_how_the_state_came_back_is_told(self, graph: Http, database: FakeClient) -> None:
        assert graph.get("/readyz").json()["recovered"] is None
        database.activity = {"recovered": "from the checkpoint of epoch 1"}
        ready = graph.get("/readyz").json()
        assert ready["recovered"] == "from the checkpoint of epoch 1"
        Readiness.model_validate(ready)

    def test_readiness_is_logged_when_it_changes(
        self, graph: Http, database: FakeClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        def asked() -> list[str]:
            caplog.clear()
            for _ in range(5):
                graph.get("/readyz")
            return [record.getMessage() for record in caplog.records if record.name == "zedlog.service"]

        database.engine_runs = False
        assert asked() == [
            'the service is not ready: no engine serves the database "default" now; it is absent; it keeps trying'
        ]
        assert asked() == []
        database.engine_runs = True
        assert asked() == ['the service is ready: an engine serves "default"']
        database.redis_away = True
        assert asked() == [
            "the service is not ready: Redis cannot be reached: connection refused; it keeps trying"
        ]
        # What other calls are told is logged as before.
        graph.get("/v1/relations")
        said = [record.getMessage() for record in caplog.records if record.name == "zedlog.service"]
        assert "GET /v1/relations: storage_unavailable" in said[-1]


class TestMetrics:
    def value(self, http: Http, line: str) -> float | None:
        for found in http.get("/metrics").text.splitlines():
            if found.startswith(line + " "):
                return float(found.removeprefix(line))
        return None

    def test_requests_are_counted_by_route(self, graph: Http) -> None:
        for relation in ("edge", "tc", "nothing"):
            graph.get(f"/v1/relations/{relation}")
        graph.get("/nowhere")
        series = 'zedlog_http_requests_total{method="GET",route="/v1/relations/{relation}",status="%s"}'
        assert self.value(graph, series % 200) == 2
        assert self.value(graph, series % 404) == 1
        unmatched = 'zedlog_http_requests_total{method="GET",route="unmatched",status="404"}'
        assert self.value(graph, unmatched) == 1
        seconds = 'zedlog_http_request_seconds_count{method="POST",route="/v1/transactions"}'
        assert self.value(graph, seconds) == 1

    def test_epoch_lag_engine_and_storage(self, graph: Http, database: FakeClient) -> None:
        names = ("zedlog_epoch", "zedlog_log_lag", "zedlog_engine_up", "zedlog_storage_up")
        assert [self.value(graph, n) for n in names] == [1, 0, 1, 1]
        database.engine_runs = False
        graph.post("/v1/facts?wait=false", {"relation": "edge", "tuples": [["x", "y"]]})
        assert [self.value(graph, n) for n in names] == [1, 1, 0, 1]
        database.redis_away = True
        assert [self.value(graph, n) for n in names] == [1, 1, 0, 0]

    def test_faults_and_the_running_epoch(self, graph: Http, database: FakeClient) -> None:
        names = ("zedlog_internal_errors_total", "zedlog_epoch_running_seconds")
        assert [self.value(graph, n) for n in names] == [0, 0]
        database.activity = {"evaluating": RUNNING, "faults": 3}
        assert [self.value(graph, n) for n in names] == [3, 2.25]

    def test_indexes(self, graph: Http, database: FakeClient) -> None:
        names = ("bytes", "builds_total", "build_seconds_total", "running")
        assert [self.value(graph, f"zedlog_index_{name}") for name in names] == [0, 0, 0, 0]
        database.indexes = IndexStats(3_000, 2, 0.5, 1)
        database.redis_away = True
        assert [self.value(graph, f"zedlog_index_{name}") for name in names] == [3_000, 2, 0.5, 1]

    def test_outcomes_are_counted(self, graph: Http) -> None:
        graph.post("/v1/facts", {"relation": "edge", "tuples": [["x", "y"]], "weight": -1})
        assert self.value(graph, 'zedlog_transactions_total{outcome="committed"}') == 1
        assert self.value(graph, 'zedlog_transactions_total{outcome="refused"}') == 1


class TestApp:
    def test_the_client_is_closed_at_shutdown(self, database: FakeClient) -> None:
        app = create_app(Settings(), database)

        async def live() -> None:
            async with app.router.lifespan_context(app):
                assert not database.closed

        asyncio.run(live())
        assert database.closed

    def test_settings_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ZEDLOG_MAX_BODY_BYTES", "123")
        monkeypatch.setenv("ZEDLOG_DATABASE", "other")
        settings = Settings()
        assert (settings.max_body_bytes, settings.database) == (123, "other")

    @pytest.mark.parametrize(
        "bad",
        [{"default_limit": 10, "max_limit": 5}, {"wait_timeout": 0}, {"max_limit": 10**9}, {"database": ""}],
    )
    def test_settings_that_cannot_be(self, bad: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="validation error"):
            Settings(**bad)

    def test_a_browser_finds_the_description(self, http: Http) -> None:
        assert http.get("/").headers["location"] == "/console"
        assert http.get("/docs").status_code == 200


def test_the_projection_cache_is_bounded() -> None:
    cache = ProjectionCache(5)
    cache.put(("1-x", "a"), [(1,), (2,), (3,)])
    cache.put(("1-x", "b"), [(1,), (2,)])
    assert cache.get(("1-x", "a")) is not None
    cache.put(("1-x", "c"), [(1,)])
    assert cache.get(("1-x", "b")) is None, "the one used least recently goes"
    assert cache.get(("1-x", "a")) == [(1,), (2,), (3,)]
    cache.put(("1-x", "d"), [(i,) for i in range(6)])
    assert cache.get(("1-x", "d")) is None, "larger than the whole cache"
