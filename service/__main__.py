"""The service alone, without engine and Redis of its own: `python -m service`, configured by `ZEDLOG_*` variables.

`zedlog serve` starts the whole system instead.
"""

from __future__ import annotations

import sys

import uvicorn

from engine.errors import InvalidRequestError
from engine.server.options import read_settings
from service.app import create_app
from service.settings import Settings


def main() -> None:
    try:
        settings = read_settings(Settings, {})
    except InvalidRequestError as error:
        print(f"python -m service: error: {error.message}", file=sys.stderr)
        sys.exit(2)
    uvicorn.run(create_app(settings), host=settings.host, port=settings.port, access_log=False)


if __name__ == "__main__":
    main()
