"""The service alone, without engine and Redis of its own: `python -m service`, configured by `ZEDLOG_*` variables.

`zedlog serve` starts the whole system instead.
"""

from __future__ import annotations

import asyncio
import sys

import uvicorn

from engine.errors import InvalidRequestError, StorageUnavailableError
from engine.server.options import read_settings
from service.access.exposure import check_exposure
from service.app import create_app
from service.settings import Settings


def main() -> None:
    try:
        settings = read_settings(Settings, {})
        app = create_app(settings)
        asyncio.run(check_exposure(settings, settings.redis_url, f"--redis-url {settings.redis_url}"))
    except InvalidRequestError as error:
        print(f"python -m service: error: {error.message}", file=sys.stderr)
        sys.exit(2)
    except StorageUnavailableError:
        # It starts all the same, and asks for tokens as soon as there are any to be compared.
        pass
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


if __name__ == "__main__":
    main()
