"""The service alone, without engine and Redis of its own: `python -m service`, all by `ZEDLOG_*` variables.

`zedlog serve` starts the whole system instead.
"""

from __future__ import annotations

import uvicorn

from service.app import create_app
from service.settings import Settings


def main() -> None:
    settings = Settings()
    uvicorn.run(create_app(settings), host=settings.host, port=settings.port, access_log=False)


if __name__ == "__main__":
    main()
