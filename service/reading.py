"""Which epoch a read sees, and how large its page is.

A read pins one published epoch: the newest, the one of `as_of`, or the one that its cursor began with. With
`at_least` it first waits until that epoch is published, which is how a client reads its own writes.
"""

from __future__ import annotations

from engine.errors import EngineUnavailableError, InvalidCursorError, shown
from engine.language.prefixes import NO_PREFIXES, Prefixes, may_use_prefixes
from engine.storage.client import parse_token
from engine.storage.snapshot import Snapshot
from service.context import Service
from service.cursor import Cursor
from service.principal import LOCAL, Principal
from service.problems import InvalidParameterError


async def pin(
    service: Service, at_least: str | None = None, as_of: int | None = None, cursor: Cursor | None = None
) -> Snapshot:
    """The snapshot to read.

    Raises:
        InvalidTokenError, InvalidParameterError, InvalidCursorError: the parameters are wrong or contradictory.
        EngineUnavailableError: the epoch of `at_least` is not published in time.
        EpochNotRetainedError: the epoch is no longer retained, or does not exist and will not come.
    """
    if cursor is not None and as_of is not None and as_of != cursor.epoch:
        raise InvalidCursorError(
            f"the cursor belongs to epoch {cursor.epoch}, but as_of asks for epoch {as_of}; leave as_of out"
        )
    epoch = as_of if cursor is None else cursor.epoch
    if at_least is not None:
        await _wait(service, at_least, epoch)
    snapshot = await service.client.snapshot(epoch)
    if cursor is not None and snapshot.token != cursor.token:
        raise InvalidCursorError("the cursor belongs to another database; start again without a cursor")
    return snapshot


async def prefixes_for(service: Service, text: str | None) -> Prefixes:
    """The prefixes that the newest epoch declares, if the text may use any."""
    if text is None or not may_use_prefixes(text):
        return NO_PREFIXES
    return (await service.client.snapshot()).prefixes


async def _wait(service: Service, at_least: str, epoch: int | None) -> None:
    wanted = parse_token(at_least, await service.client.incarnation())
    if epoch is not None and epoch < wanted:
        raise InvalidParameterError(
            f"the epoch to read is {epoch}, which is older than the one that at_least asks for, {wanted}"
        )
    timeout = service.settings.wait_timeout
    if not await service.client.wait_epoch(wanted, timeout):
        raise EngineUnavailableError(f"epoch {wanted} was not published within {timeout:g} s", epoch=wanted)


def page_limit(service: Service, limit: int | None, principal: Principal = LOCAL) -> int:
    """The limit asked for, or the default.

    Raises:
        InvalidParameterError: it exceeds this service's maximum, or the principal's.
    """
    most = principal.rows
    if limit is None:
        return min(service.settings.default_limit, most or service.settings.default_limit)
    if most is not None and limit > most:
        raise InvalidParameterError(
            f"limit {limit} exceeds the {most} rows that {shown(principal.name)} may have in one answer",
            maximum=most,
        )
    if limit > service.settings.max_limit:
        raise InvalidParameterError(
            f"limit {limit} exceeds this service's maximum of {service.settings.max_limit}",
            maximum=service.settings.max_limit,
        )
    return limit
