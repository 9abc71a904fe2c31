"""The command that keeps `openapi/openapi.json`, the API's description as a file.

    python -m service.openapi           writes the file
    python -m service.openapi --check   fails when the file is stale

Always: the same code gives the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import orjson

from service.app import create_app
from service.settings import Settings

FILE: Final = Path(__file__).parent.parent / "openapi" / "openapi.json"


def rendered() -> bytes:
    """The content of the file: the description of an app with default settings, whatever the environment says."""
    app = create_app(Settings.model_construct())
    return orjson.dumps(app.openapi(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m service.openapi", description="Write the API's description."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the file is stale")
    check = parser.parse_args().check
    fresh = rendered()
    if check:
        if FILE.exists() and FILE.read_bytes() == fresh:
            return 0
        print(f"{FILE.name} is stale: run scripts/openapi", file=sys.stderr)
        return 1
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_bytes(fresh)
    print(f"wrote {FILE} ({len(fresh)} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
