"""What an event loop says of a connection that was cut is an error about storage; other errors stay what they are."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from engine.errors import StorageUnavailableError
from engine.storage.connection import storage_errors


def test_a_connection_that_uvloop_has_closed() -> None:
    async def write() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            _, writer = await asyncio.open_connection(sock=ours)
            writer.transport.abort()
            await asyncio.sleep(0.05)
            with storage_errors():
                writer.writelines([b"PING"])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(StorageUnavailableError):
        runner.run(write())


def test_another_error_of_the_program_stays_one() -> None:
    with pytest.raises(RuntimeError, match="a bug"), storage_errors():
        raise RuntimeError("a bug")
