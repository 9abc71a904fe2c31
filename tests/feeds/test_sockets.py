"""Feeds over real sockets: the form of the events, a listener that does not read, one that comes back, the end of the
service, and `zedlog watch`."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.live import ROOT, LiveSystem
from tests.service.conftest import problem
from tests.waiting import until


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEDLOG_FEED_SEND_TIMEOUT", "0.5")
        with LiveSystem(tmp_path_factory.mktemp("feeds")) as system:
            with system.client() as client:
                send(client, "edge", [["a", "b"]])
            yield system


@pytest.fixture
def http(live: LiveSystem) -> Iterator[httpx.Client]:
    with live.client() as client:
        yield client


def send(client: httpx.Client, relation: str, rows: list[list[Any]], weight: int = 1) -> dict[str, Any]:
    answer = client.post("/v1/facts", json={"relation": relation, "tuples": rows, "weight": weight})
    assert answer.status_code == 200, answer.text
    done: dict[str, Any] = answer.json()
    return done


def changes(client: httpx.Client, accept: str = "application/x-ndjson", **options: Any) -> httpx.Response:
    headers = {"accept": accept, **options.pop("headers", {})}
    return client.get("/v1/changes", params={"follow": "false", **options}, headers=headers)


def test_the_form_of_events(http: httpx.Client) -> None:
    first = send(http, "form", [["x\r\ny", 1]])
    token, epoch = first["token"], first["epoch"]
    before = f"{epoch - 1}-{token.partition('-')[2]}"
    answer = changes(http, "text/event-stream", relation="form", after=before)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["zedlog-token"] == before
    events = answer.text.removesuffix("\n\n").split("\n\n")
    assert events[0].split("\n") == [
        f"id: {before}",
        "event: progress",
        f'data: {{"epoch":{epoch - 1},"token":"{before}"}}',
    ]
    name, kind, data = events[1].split("\n")
    assert (name, kind) == (f"id: {token}", "event: change")
    change = orjson.loads(data.removeprefix("data: "))
    assert change["changes"] == {"form": {"inserted": [["x\r\ny", 1]], "deleted": []}}
    assert change["columns"]["form"][1] == {"name": "c1", "type": "number"}
    # The same as lines; the reader comes back with the last id, as an EventSource does, and gets what is later.
    lines = changes(http, relation="form", after=before).text.splitlines()
    assert [orjson.loads(line)["event"] for line in lines] == ["progress", "change", "end"]
    assert orjson.loads(lines[1]) == {"event": "change", **change}
    again = changes(http, relation="form", after="0", snapshot="true", headers={"last-event-id": token})
    assert [orjson.loads(line)["event"] for line in again.text.splitlines()] == ["progress", "end"]


def test_wrong_parameters(http: httpx.Client) -> None:
    def refused(status: int, code: str, **options: Any) -> dict[str, Any]:
        return problem(changes(http, **options), status, code)

    refused(400, "invalid_parameter")
    refused(404, "unknown_relation", relation="egde")
    refused(400, "unknown_column", relation="edge", z="1")
    refused(400, "unknown_column", relation="edge", heartbet="1")
    refused(400, "invalid_parameter", relation="edge", heartbeat="0.01")
    refused(400, "invalid_parameter", relation="edge", heartbeat="301")
    refused(400, "invalid_parameter", relation="edge", query="edge(x, y)")
    refused(400, "invalid_parameter", query="edge(x, y)", c0="a")
    refused(400, "invalid_token", relation="edge", after="newest")
    refused(400, "invalid_token", relation="edge", after="1-00000000")
    refused(400, "invalid_token", relation="edge", headers={"last-event-id": "1-00000000"})
    refused(404, "epoch_not_retained", relation="edge", after="100000")
    refused(422, "syntax_error", query="edge(x")
    refused(422, "unsafe_rule", query="edge(x, y), z < 1")
    refused(406, "not_acceptable", relation="edge", accept="text/csv")
    twice = http.get("/v1/changes?relation=edge&after=1&after=2&follow=false")
    assert problem(twice, 400, "invalid_parameter")["parameter"] == "after"


def metric(http: httpx.Client, name: str) -> float:
    lines = http.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_a_listener_that_does_not_read_is_cut_off_and_comes_back(
    live: LiveSystem, http: httpx.Client
) -> None:
    begun = send(http, "wide", [["first", 0]])
    cut = metric(http, "zedlog_feed_cut_off_total")
    port = int(live.url.rpartition(":")[2])
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.connect(("127.0.0.1", port))
        request = f"GET /v1/changes?relation=wide&after={begun['token']}&heartbeat=0.2 HTTP/1.1\r\nhost: localhost\r\n"
        slow.sendall(f"{request}accept: application/x-ndjson\r\n\r\n".encode())
        until(lambda: metric(http, "zedlog_feed_listeners") == 1)
        rows = [[f"{'x' * 200}{i}", i] for i in range(20_000)]
        sent = [send(http, "wide", rows)["epoch"], send(http, "wide", rows, -1)["epoch"]]
        until(lambda: metric(http, "zedlog_feed_cut_off_total") == cut + 1)
        assert metric(http, "zedlog_feed_listeners") == 0
        assert "took nothing for 0.5 s" in live.logs()
        slow.settimeout(10)
        received = b""
        try:
            while part := slow.recv(1 << 16):
                received += part
        except TimeoutError:
            pass
    # Of some four megabytes no more was under way than what the sockets and one part hold.
    assert b'"event":"change"' not in received.rpartition(b"}\n")[0]
    assert len(received) < 3_500_000
    # It comes back with the last position that it has, and misses nothing.
    lines = [
        orjson.loads(line) for line in changes(http, relation="wide", after=begun["token"]).text.splitlines()
    ]
    found = [event for event in lines if event["event"] == "change"]
    assert [event["epoch"] for event in found] == sent
    assert [len(event["changes"]["wide"]["inserted"]) for event in found] == [20_000, 0]


class Watch:
    """`zedlog watch` into a pipe."""

    def __init__(self, live: LiveSystem, *arguments: str) -> None:
        command = [sys.executable, "-m", "zedlog", "watch", *arguments, "--url", live.url]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.out)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.err)),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))

    def until(self, number: int) -> None:
        until(lambda: len(self.out) >= number, lambda: f"{number} lines: {self.out} {self.err}", 60)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def test_watch_shows_changes_goes_on_after_a_kill_and_says_where_it_was(
    live: LiveSystem, http: httpx.Client
) -> None:
    send(http, "link", [["a", "b"], ["b", "c"], ["x", "y"]])
    with Watch(live, 'link("a", x), link(x, y)', "--snapshot") as watch:
        watch.until(1)
        epoch = send(http, "link", [["b", "d"]])["epoch"]
        watch.until(2)
        live.kill("service")
        live.start("service")
        live.wait_ready()
        with live.client() as again:
            last = send(again, "link", [["b", "c"], ["b", "d"]], -1)
            watch.until(4)
        watch.process.send_signal(signal.SIGINT)
        assert watch.process.wait(20) == 0
    signs = [(line.split("\t")[0], line.split("\t")[1], line.split("\t")[3]) for line in watch.out]
    assert (signs[0][0], signs[0][2]) == ("=", '("b", "c")')
    assert signs[1:] == [
        ("+", str(epoch), '("b", "d")'),
        ("-", str(last["epoch"]), '("b", "c")'),
        ("-", str(last["epoch"]), '("b", "d")'),
    ]
    said = "\n".join(watch.err)
    assert "going on after" in said
    assert f"--after {last['token']}" in said


def test_watch_takes_a_relation_as_json_and_refuses_what_the_service_refuses(
    live: LiveSystem, http: httpx.Client
) -> None:
    done = send(http, "seen", [["a"]])
    with Watch(live, "seen", "--json", "--after", str(done["epoch"] - 1)) as watch:
        watch.until(1)
        event = orjson.loads(watch.out[0])
        assert (event["event"], event["epoch"]) == ("change", done["epoch"])
        assert event["changes"] == {"seen": {"inserted": [["a"]], "deleted": []}}
    with Watch(live, "nothing(x)") as watch:
        assert watch.process.wait(30) == 1
    assert 'there is no relation "nothing"' in "\n".join(watch.err)
    with Watch(live, "seen", "--after", "1-00000000") as watch:
        assert watch.process.wait(30) == 1
    assert "belongs to another database" in "\n".join(watch.err)


def test_the_service_ends_at_once_and_says_so(live: LiveSystem, http: httpx.Client) -> None:
    found: list[dict[str, Any]] = []

    def listen() -> None:
        with (
            live.client() as client,
            client.stream(
                "GET", "/v1/changes?relation=edge", headers={"accept": "application/x-ndjson"}
            ) as answer,
        ):
            found.extend(orjson.loads(line) for line in answer.iter_lines())

    thread = threading.Thread(target=listen)
    thread.start()
    until(lambda: metric(http, "zedlog_feed_listeners") == 1)
    process = live._processes["service"]
    process.terminate()
    assert process.wait(20) == 0 or process.returncode == -signal.SIGTERM
    thread.join(10)
    assert [event["event"] for event in found] == ["progress", "end"]
    assert found[-1]["reason"] == "shutdown"
    live.start("service")
    live.wait_ready()
