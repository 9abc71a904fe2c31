"""Requests to one service: sent, repeated where that is safe, and decoded. Everything else of the client uses this.

In: method, path, parameters, JSON. Out: decoded JSON. An answer other than 2xx is raised as `ServiceError`, a service
that does not answer as `Unreachable`, whose text says how to start one.

A request that changes something is sent again after a lost connection only if it carries an Idempotency-Key: then the
service applies it once, however often it arrives. What only reads is sent again as it is.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson

from zedlog.client.errors import Json, Unreachable, error_of

if TYPE_CHECKING:
    import httpx

    from zedlog.client.drivers import Driver

DEFAULT_URL = "http://127.0.0.1:8321"
# Where the URL and the token of the service are looked for.
URL_VARIABLE = "ZEDLOG_URL"
TOKEN_VARIABLE = "ZEDLOG_TOKEN"
# A refused or broken connection is tried again this often, this far apart (a restart of the service takes
# less).
ATTEMPTS = 6
PAUSE_SECONDS = 0.5
# A token that has made too many requests waits so long for its next one, in all.
RATE_PATIENCE_SECONDS = 60.0
# How often, and by default for how long, the outcome behind a 202 is asked for.
_POLL_SECONDS = 0.2
PATIENCE_SECONDS = 600.0
_CONNECT_SECONDS = 5.0

JSON = "application/json"
NDJSON = "application/x-ndjson"
# Calls that only read, although they are sent by POST.
_READS = ("/v1/query", "/v1/explain")
_REPLAYED = "Idempotency-Replayed"


class Connection:
    """See the module. `hint` tells in messages how to reach a service that runs elsewhere."""

    hint = f"give the URL of another one, to the client or in {URL_VARIABLE}"

    def __init__(
        self,
        driver: Callable[..., Driver],
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 120.0,
        transport: Any = None,
    ) -> None:
        """`transport` replaces the network. Without a `token`, the one of `ZEDLOG_TOKEN` goes with every request.

        Raises:
            Unreachable: what is there cannot be a token, or the URL is none.
        """
        import httpx

        self.url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
        given = (os.environ.get(TOKEN_VARIABLE, "") if token is None else token).strip()
        if not (given.isascii() and given.isprintable()):
            raise Unreachable(f"what {TOKEN_VARIABLE if token is None else 'token'} holds is not a token")
        try:
            self.driver = driver(
                base_url=self.url,
                timeout=httpx.Timeout(timeout, connect=_CONNECT_SECONDS),
                transport=transport,
                headers={"authorization": f"Bearer {given}"} if given else {},
            )
        except httpx.InvalidURL as error:
            raise self._unreachable(error) from error
        self._reached = False

    async def close(self) -> None:
        """Give back the connections."""
        await self.driver.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Any call of the service (docs/http.md). The answer is decoded JSON; where `headers` accept something else,
        text or bytes. Parameters that are None are left out.

        Raises:
            ServiceError, Unreachable.
        """
        response = await self.exchange(
            method, path, params, json if content is None else content, headers or {}, repeatable=None
        )
        kind = response.headers.get("content-type", "")
        if any(name.lower() == "accept" for name in headers or {}) and "json" not in kind:
            return response.text if kind.startswith("text/") or "charset" in kind else response.content
        return decoded(response)

    async def get(self, path: str, /, **parameters: Any) -> Json:
        """GET; parameters that are None are left out."""
        return as_object(await self.exchange("GET", path, parameters, None, {}, repeatable=True))

    async def post(self, path: str, body: Json, *, key: str | None = None) -> Json:
        """POST a JSON body; with a key it may be repeated."""
        return as_object(await self.exchange("POST", path, {}, body, keyed(key), repeatable=None))

    async def delete(self, path: str) -> Json:
        """DELETE, where that has the same effect however often it is sent."""
        return as_object(await self.exchange("DELETE", path, {}, None, {}, repeatable=True))

    async def change(
        self,
        path: str,
        body: Json | str | None,
        *,
        method: str = "POST",
        content_type: str = JSON,
        message: str | None = None,
        source: str | None = None,
        key: str | None = None,
        dry_run: bool = False,
        delta: bool = False,
        strategy: str | None = None,
        placement: str | None = None,
        timeout: float | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> Json:
        """Send a transaction in the form that `path` accepts, and wait for its epoch, even if the service first
        answers 202. `replayed`: the key had been used before.

        Raises:
            ServiceError: the transaction was refused; nothing of it was applied.
            Unreachable: there is no service, or no outcome within `patience` seconds (the transaction may still be in
                the log).
        """
        parameters = {
            "dry_run": "true" if dry_run else None,
            "return": "delta" if delta else None,
            "strategy": strategy,
            "placement": placement,
            "message": message,
            "source": source,
            "timeout": timeout,
        }
        headers = {"content-type": content_type, **keyed(key)}
        response = await self.exchange(method, path, parameters, body, headers, repeatable=key is not None)
        outcome = await self._settled(as_object(response), patience)
        return {**outcome, "replayed": _REPLAYED in response.headers}

    async def _settled(self, answer: Json, patience: float) -> Json:
        """Wait for the outcome behind a 202; other answers are outcomes already."""
        where = answer.get("status_url")
        if where is None or "epoch" in answer:
            return answer
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            state = await self.get(str(where))
            if state.get("status") != "pending":
                return _outcome(state)
            await self.driver.sleep(_POLL_SECONDS)
        raise Unreachable(
            f"transaction {answer.get('transaction')} is in the log, but no engine has applied it for "
            f"{patience:.0f} s; 'zedlog status' shows whether an engine runs, and 'zedlog engine' starts one"
        )

    async def upload(self, path: str, name: str | None, stream: Iterable[bytes]) -> Json:
        """POST a file as it is read; name: the parameter of that name, for a call that has it.

        Raises:
            ServiceError, Unreachable.
        """
        import httpx

        headers = {"accept": JSON, "content-type": "application/octet-stream"}
        try:
            response = await self.driver.send(
                "POST", path, params={} if name is None else {"name": name}, headers=headers, content=stream
            )
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error
        return as_object(checked(response))

    @asynccontextmanager
    async def opened(
        self, path: str, parameters: Mapping[str, Any], **options: Any
    ) -> AsyncIterator[httpx.Response]:
        """The answer to a GET whose content is read as it comes. options: headers, timeout.

        Raises:
            ServiceError, Unreachable: also in the middle, when the connection breaks.
        """
        import httpx

        try:
            async with self.driver.stream("GET", path, params=given(parameters), **options) as response:
                yield checked(response)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error

    async def download(self, path: str, /, **parameters: Any) -> AsyncGenerator[bytes, None]:
        """GET a file, portion by portion."""
        async with self.opened(path, parameters) as response:
            async for portion in self.driver.portions(response):
                yield portion

    async def events(
        self,
        path: str,
        parameters: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        silence: float | None = None,
    ) -> AsyncGenerator[Json, None]:
        """The events of a feed, as they come, until the service ends it; before them `begun`, with the token of the
        epoch after which it begins. silence: seconds without an event after which the connection counts as lost.

        Raises:
            ServiceError, Unreachable: also when the connection is lost later.
        """
        import httpx

        options: Json = {"headers": {"accept": NDJSON, **(headers or {})}}
        if silence is not None:
            options["timeout"] = httpx.Timeout(silence, connect=_CONNECT_SECONDS)
        async with self.opened(path, parameters, **options) as response:
            yield {"event": "begun", "token": response.headers.get("zedlog-token")}
            async for line in self.driver.lines(response):
                try:
                    event = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    # Something between here and the service has ended the answer in the middle of a line.
                    raise Unreachable(f"the connection to {self.url} was lost: half of an event") from error
                yield event

    async def exchange(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str],
        *,
        repeatable: bool | None,
    ) -> httpx.Response:
        """Send until an answer comes: up to `ATTEMPTS` times if the request may be repeated, otherwise once.
        repeatable: None means if it only reads, or has a key.
        """
        import httpx

        sent = {"accept": JSON, "content-type": JSON, **{n.lower(): v for n, v in headers.items()}}
        options = {
            "params": given(parameters or {}),
            "headers": sent,
            "content": _encoded(body),
        }
        if repeatable is None:
            repeatable = method in ("GET", "HEAD") or path in _READS or "idempotency-key" in sent
        left, waited = ATTEMPTS if repeatable else 1, 0.0
        while True:
            pause = PAUSE_SECONDS
            try:
                response = await self.driver.send(method, path, **options)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                left -= 1
                # Refused before anything else answered: it is not running, say so at once. Later it is a
                # service that restarts.
                hopeless = isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol) or (
                    isinstance(error, httpx.ConnectError) and not self._reached
                )
                if not left or hopeless:
                    raise self._unreachable(error) from error
            else:
                self._reached = True
                if response.status_code == 429 and waited < RATE_PATIENCE_SECONDS:
                    # Nothing was done, so it may be sent again, whatever it is.
                    pause = min(_retry_after(response), RATE_PATIENCE_SECONDS)
                    waited += pause
                elif response.status_code == 503 and left > 1:
                    left -= 1
                else:
                    return checked(response)
            await self.driver.sleep(pause)

    def _unreachable(self, error: httpx.TransportError | httpx.InvalidURL) -> Unreachable:
        import httpx

        if isinstance(error, httpx.InvalidURL):
            return Unreachable(f"{self.url} is not a URL: {error}")
        if isinstance(error, httpx.UnsupportedProtocol):
            return Unreachable(f"{self.url} is not an http:// or https:// URL")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return Unreachable(
                f"no Zedlog service answers at {self.url} ({error}).\n"
                f"Start one with 'zedlog serve', or {self.hint}."
            )
        return Unreachable(f"the connection to {self.url} was lost: {error or type(error).__name__}")


def given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that are not None."""
    return {name: value for name, value in parameters.items() if value is not None}


def _encoded(body: Any) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else orjson.dumps(body)


def new_key() -> str:
    """An Idempotency-Key that nobody has used."""
    return uuid.uuid4().hex


def keyed(key: str | None) -> dict[str, str]:
    return {} if key is None else {"idempotency-key": key}


def checked(response: httpx.Response) -> httpx.Response:
    """The response itself, if it is a success.

    Raises:
        ServiceError.
    """
    if response.is_success:
        return response
    try:
        problem = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"title": f"{response.status_code} {response.reason_phrase}", "detail": response.text[:500]}
    raise error_of(response.status_code, problem, replayed=_REPLAYED in response.headers)


def decoded(response: httpx.Response) -> Any:
    """The JSON of a response; None for an empty one."""
    if not response.content:
        return None
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"{response.url} did not answer with JSON; is this a Zedlog service?") from error


def as_object(response: httpx.Response) -> Json:
    answer = decoded(response)
    if isinstance(answer, dict):
        return answer
    return {} if answer is None else {"items": answer}


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 1.0


def _outcome(state: Json) -> Json:
    """The outcome in the answer of `GET /v1/transactions/{id}`."""
    problem = state.get("problem")
    if isinstance(problem, dict):
        raise error_of(int(problem.get("status", 422)), problem)
    result = state.get("result")
    return result if isinstance(result, dict) else state
