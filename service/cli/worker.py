"""The HTTP service of `zedlog serve`: uvicorn on a listening socket that the supervisor opened.

In: `--fd N`, an inherited socket; the settings come from `ZEDLOG_*` variables. The socket outlives this process: when
the supervisor restarts it, clients that connected meanwhile wait in the socket's queue and are not refused.
"""

from __future__ import annotations

import argparse
import socket
from functools import partial

import uvicorn

from engine.server.options import read_settings
from service.app import create_app
from service.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(description="The HTTP service on an inherited socket.")
    parser.add_argument("--fd", type=int, required=True, help="file descriptor of the listening socket")
    arguments = parser.parse_args()
    listener = socket.socket(fileno=arguments.fd)
    settings = read_settings(Settings, {})
    config = uvicorn.Config(
        partial(create_app, settings),
        factory=True,
        access_log=False,
        lifespan="on",
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
