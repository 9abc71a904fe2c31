"""The HTTP service of `zedlog serve`: uvicorn on a listening socket that the supervisor opened.

In: `--fd N`, an inherited socket; the settings come from `ZEDLOG_*` variables. The socket outlives this process: when
the supervisor restarts it, clients that connected meanwhile wait in the socket's queue and are not refused.
"""

from __future__ import annotations

import argparse
import socket

import uvicorn


def main() -> None:
    parser = argparse.ArgumentParser(description="The HTTP service on an inherited socket.")
    parser.add_argument("--fd", type=int, required=True, help="file descriptor of the listening socket")
    arguments = parser.parse_args()
    listener = socket.socket(fileno=arguments.fd)
    config = uvicorn.Config("service.app:create_app", factory=True, access_log=False, lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
