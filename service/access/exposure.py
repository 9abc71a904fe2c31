"""Before a service starts: whether others can reach it, and nobody is asked for a token."""

from __future__ import annotations

from engine.errors import InvalidRequestError
from engine.storage.client import DatabaseClient
from service.access.settings import AccessSettings


async def check_exposure(settings: AccessSettings, redis_url: str, where: str) -> None:
    """Refuse to serve other machines as long as no token could be asked of them. where: the options that name the
    database for `zedlog token create`.

    Raises:
        InvalidRequestError: the address is not the loopback one, and the database has no token.
        StorageUnavailableError: Redis cannot be reached.
    """
    if settings.is_local or settings.insecure or settings.jwt_keys is not None:
        return
    client = DatabaseClient.connect(redis_url, settings.database)
    try:
        if await client.tokens.all():
            return
    finally:
        await client.close()
    raise InvalidRequestError(
        f"the service would listen on {settings.host}, where other machines can reach it, and the database has no "
        "token that it could ask them for. Make one, keep what it prints, and start the service again:\n"
        f"  zedlog token create admin --role admin {where}\n"
        "Or leave --host out, to serve this machine alone. Or, if everybody who reaches the address may read and "
        "change everything, add --insecure (ZEDLOG_INSECURE=true)."
    )
