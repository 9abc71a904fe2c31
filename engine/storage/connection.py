"""Connections to Redis, and the one place where redis-py's errors become ours.

A command may be sent twice only if that does no harm. Every command of the asynchronous side is of that kind (reads,
and appends under a key), so it tries once more, over a new connection: a server that was restarted between two requests
is not an error. The synchronous side, which publishes, does not retry by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ConnectionError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from engine.errors import InvalidRequestError, StorageUnavailableError, shown

# A command that moves some ten megabytes on a busy machine must not time out; a dead server is noticed by the
# closed connection, not by this.
SOCKET_TIMEOUT = 30.0
CONNECT_TIMEOUT = 5.0
# Of one asynchronous client. More would only queue in the server, which does one command at a time.
ASYNC_CONNECTIONS = 32

_CLOSED = "the handler is closed"

# Answers of a server that is there, but cannot serve now: starting, failing over, disk full, in a long
# script.
_TEMPORARY = (
    "LOADING",
    "MASTERDOWN",
    "READONLY",
    "OOM",
    "MISCONF",
    "BUSY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "UNKILLABLE",
)


def connect(redis_url: str, **options: Any) -> redis.Redis:
    """A synchronous client; connects when first used."""
    with _url_errors(redis_url):
        return redis.Redis.from_url(redis_url, **_settings(), retry=Retry(NoBackoff(), 0), **options)


def connect_async(redis_url: str, **options: Any) -> redis.asyncio.Redis:
    """An asynchronous client; connects when first used. A caller that finds all its connections busy waits for one."""
    with _url_errors(redis_url):
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            redis_url,
            **_settings(),
            retry=AsyncRetry(NoBackoff(), 1),
            max_connections=ASYNC_CONNECTIONS,
            timeout=SOCKET_TIMEOUT,
            **options,
        )
    return redis.asyncio.Redis(connection_pool=pool)


def _settings() -> dict[str, Any]:
    return {
        "socket_timeout": SOCKET_TIMEOUT,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        # The answers of RESP 2 have the same shape in every version of redis-py.
        "protocol": 2,
    }


@contextmanager
def _url_errors(redis_url: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InvalidRequestError(f"{shown(redis_url)} is not a Redis URL: {error}") from error


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turn redis-py's errors about the server's absence into StorageUnavailableError; let others pass.

    Commands that the body sent before the connection broke may have been executed.
    """
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        raise StorageUnavailableError(f"Redis cannot be reached: {error}") from error
    except (OutOfMemoryError, ReadOnlyError, MasterDownError) as error:
        raise StorageUnavailableError(f"Redis cannot serve now: {error}") from error
    except ResponseError as error:
        if str(error).startswith(_TEMPORARY):
            raise StorageUnavailableError(f"Redis cannot serve now: {error}") from error
        raise
    except RedisError as error:
        raise StorageUnavailableError(f"Redis failed: {error}") from error
    except OSError as error:
        raise StorageUnavailableError(f"Redis cannot be reached: {error}") from error
    except RuntimeError as error:
        # So uvloop says that the connection was closed between two of its steps.
        if _CLOSED not in str(error):
            raise
        raise StorageUnavailableError("Redis cannot be reached: the connection was closed") from error
