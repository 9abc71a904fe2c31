"""How the command line talks to a running service: one HTTP client, and its failures in plain words.

In: method, path, parameters, JSON. Out: decoded JSON. An answer other than 2xx is raised as `Refused`, which carries
the service's problem document; a service that cannot be reached is `Unreachable`, whose text says how to start one.
Every command uses only this module, so errors look the same everywhere.

A request that changes something is sent again after a lost connection only if it carries an Idempotency-Key: then the
service applies it once, however often it arrives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "http://127.0.0.1:8321"
# A refused or broken connection is tried again this often, this far apart (a restart of the service takes
# less).
ATTEMPTS = 6
PAUSE_SECONDS = 0.5

# Where the token of the service is looked for.
TOKEN_VARIABLE = "ZEDLOG_TOKEN"
# A token that has made too many requests waits so long for its next one, in all.
RATE_PATIENCE_SECONDS = 60.0

_REPLAYED = "Idempotency-Replayed"

Json = dict[str, Any]


class Unreachable(Exception):
    """No service answers at the URL."""


class Refused(Exception):
    """The service answered with a problem document (RFC 9457); `problem` is that document."""

    def __init__(self, status: int, problem: Json, *, replayed: bool = False) -> None:
        """`replayed`: this is the answer that an earlier request with the same Idempotency-Key got."""
        super().__init__(str(problem.get("detail") or problem.get("title") or f"status {status}"))
        self.status = status
        self.problem = problem
        self.replayed = replayed

    @property
    def code(self) -> str:
        return str(self.problem.get("code", f"http_{self.status}"))


class ServiceClient:
    """A blocking client of one service. Use as a context manager."""

    def __init__(
        self, url: str, timeout: float = 120.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        """`transport` replaces the network in tests. The token of `ZEDLOG_TOKEN` goes with every request.

        Raises:
            Unreachable: what is there cannot be a token.
        """
        # Imported in the functions of this module that need it: it takes as long as a command that needs no service.
        import httpx

        self.url = url.rstrip("/")
        limits = httpx.Timeout(timeout, connect=5.0)
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not (token.isascii() and token.isprintable()):
            raise Unreachable(f"what {TOKEN_VARIABLE} holds is not a token")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=self.url, timeout=limits, transport=transport, headers=headers)
        self._reached = False

    def __enter__(self) -> ServiceClient:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._http.close()

    def get(self, path: str, **parameters: Any) -> Json:
        """GET; parameters that are None are left out."""
        return _decode(self._request("GET", path, parameters, None, {}, repeatable=True))

    def transaction(
        self,
        body: Json,
        *,
        key: str | None = None,
        dry_run: bool = False,
        delta: bool = False,
        patience: float = 600.0,
    ) -> Json:
        """Post a transaction and wait for its epoch, even if the service first answers 202.

        Raises:
            Refused: the transaction was refused; nothing of it was applied.
            Unreachable: there is no service, or no outcome within `patience` seconds (the transaction may still be in
                the log).
        """
        return self.change("/v1/transactions", body, key=key, dry_run=dry_run, delta=delta, patience=patience)

    def change(
        self,
        path: str,
        body: Json | None,
        *,
        method: str = "POST",
        message: str | None = None,
        source: str | None = None,
        key: str | None = None,
        dry_run: bool = False,
        delta: bool = False,
        strategy: str | None = None,
        placement: str | None = None,
        patience: float = 600.0,
    ) -> Json:
        """The same, for a body in the form that `path` accepts. `replayed`: the key had been used before."""
        parameters = {
            "dry_run": "true" if dry_run else None,
            "return": "delta" if delta else None,
            "strategy": strategy,
            "placement": placement,
            "message": message,
            "source": source,
        }
        headers = {} if key is None else {"idempotency-key": key}
        response = self._request(method, path, parameters, body, headers, repeatable=key is not None)
        outcome = self._settled(_decode(response), patience)
        return {**outcome, "replayed": _REPLAYED in response.headers}

    def _settled(self, answer: Json, patience: float) -> Json:
        """Wait for the outcome behind a 202; other answers are outcomes already."""
        where = answer.get("status_url")
        if where is None or "epoch" in answer:
            return answer
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            state = self.get(str(where))
            if state.get("status") != "pending":
                return _outcome(state)
            time.sleep(0.2)
        raise Unreachable(
            f"transaction {answer.get('transaction')} is in the log, but no engine has applied it for "
            f"{patience:.0f} s; 'zedlog status' shows whether an engine runs, and 'zedlog engine' starts one"
        )

    def post(self, path: str, body: Json, *, key: str | None = None) -> Json:
        """POST a JSON body; with a key it may be repeated."""
        headers = {} if key is None else {"idempotency-key": key}
        return _decode(self._request("POST", path, {}, body, headers, repeatable=key is not None))

    def delete(self, path: str) -> Json:
        """DELETE, which has the same effect however often it is sent."""
        return _decode(self._request("DELETE", path, {}, None, {}, repeatable=True))

    def upload(self, path: str, name: str | None, stream: Iterable[bytes]) -> Json:
        """POST a file as it is read; name: the parameter of that name, for a call that has it.

        Raises:
            Refused, Unreachable.
        """
        headers = {"accept": "application/json", "content-type": "application/octet-stream"}
        import httpx

        try:
            response = self._http.post(
                path, params={} if name is None else {"name": name}, headers=headers, content=stream
            )
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        return _decode(_checked(response))

    @contextmanager
    def download(self, path: str, **parameters: Any) -> Iterator[Iterator[bytes]]:
        """GET a file, portion by portion.

        Raises:
            Refused, Unreachable: also in the middle, when the connection breaks.
        """
        import httpx

        given = {name: value for name, value in parameters.items() if value is not None}
        try:
            with self._http.stream("GET", path, params=given) as response:
                if not response.is_success:
                    response.read()
                _checked(response)
                yield response.iter_bytes()
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def query(
        self, goal: str, *, page: int, limit: int | None = None, prefixes: bool = False
    ) -> Iterator[Json]:
        """Answers of one goal, page by page, at most `limit` rows in all; there is always a first page. prefixes:
        whether IRIs are shortened.
        """
        cursor: str | None = None
        left = limit
        while True:
            body: Json = {"query": goal, "limit": page if left is None else min(page, left)}
            if cursor is not None:
                body["cursor"] = cursor
            if prefixes:
                body["prefixes"] = True
            answer = _decode(self._request("POST", "/v1/query", {}, body, {}, repeatable=True))
            yield answer
            cursor = answer.get("cursor")
            if left is not None:
                left -= len(answer["tuples"])
            if cursor is None or left == 0:
                return

    def events(self, path: str, parameters: Mapping[str, Any]) -> Iterator[Json]:
        """The events of a feed, as they come. It ends when the service ends it.

        Raises:
            Refused, Unreachable: also when the connection is lost later.
        """
        import httpx

        given = {name: value for name, value in parameters.items() if value is not None}
        headers = {"accept": "application/x-ndjson"}
        try:
            with self._http.stream("GET", path, params=given, headers=headers) as response:
                if not response.is_success:
                    response.read()
                for line in _checked(response).iter_lines():
                    yield orjson.loads(line)
        except httpx.InvalidURL as error:
            raise Unreachable(f"{self.url} is not a URL: {error}") from error
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any],
        body: Json | None,
        headers: Mapping[str, str],
        *,
        repeatable: bool,
    ) -> httpx.Response:
        """Send until an answer comes: up to `ATTEMPTS` times if the request may be repeated, otherwise once."""
        import httpx

        content = None if body is None else orjson.dumps(body)
        sent = {"accept": "application/json", "content-type": "application/json", **headers}
        given = {name: value for name, value in parameters.items() if value is not None}
        attempts = ATTEMPTS if repeatable else 1
        waited = 0.0
        for attempt in range(1, attempts + 1):
            try:
                response = self._http.request(method, path, params=given, headers=sent, content=content)
            except httpx.InvalidURL as error:
                raise Unreachable(f"{self.url} is not a URL: {error}") from error
            except httpx.TransportError as error:
                # Refused before anything else answered: it is not running, say so at once. Later it is a
                # service that restarts.
                if attempt == attempts or (isinstance(error, httpx.ConnectError) and not self._reached):
                    raise self._unreachable(error) from error
            else:
                self._reached = True
                while response.status_code == 429 and waited < RATE_PATIENCE_SECONDS:
                    # Nothing was done, so it may be sent again, whatever it is.
                    pause = min(_retry_after(response), RATE_PATIENCE_SECONDS)
                    waited += pause
                    time.sleep(pause)
                    response = self._http.request(method, path, params=given, headers=sent, content=content)
                if response.status_code != 503 or attempt == attempts:
                    return _checked(response)
            time.sleep(PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    def _unreachable(self, error: httpx.TransportError) -> Unreachable:
        import httpx

        if isinstance(error, httpx.UnsupportedProtocol):
            return Unreachable(f"{self.url} is not an http:// or https:// URL")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return Unreachable(
                f"no Zedlog service answers at {self.url} ({error}).\n"
                "Start one with 'zedlog serve', or give the URL of another one with --url or ZEDLOG_URL."
            )
        return Unreachable(f"the connection to {self.url} was lost: {error or type(error).__name__}")


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 1.0


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        problem = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"title": f"{response.status_code} {response.reason_phrase}", "detail": response.text[:500]}
    raise Refused(response.status_code, problem, replayed=_REPLAYED in response.headers)


def _decode(response: httpx.Response) -> Json:
    if not response.content:
        return {}
    try:
        answer = orjson.loads(response.content)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"{response.url} did not answer with JSON; is this a Zedlog service?") from error
    return answer if isinstance(answer, dict) else {"items": answer}


def _outcome(state: Json) -> Json:
    """The outcome in the answer of `GET /v1/transactions/{id}`."""
    problem = state.get("problem")
    if isinstance(problem, dict):
        raise Refused(int(problem.get("status", 422)), problem)
    result = state.get("result")
    return result if isinstance(result, dict) else state
