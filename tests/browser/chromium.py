"""The browser of these tests: Debian's Chromium or Google's Chrome, whichever the machine has; `scripts/browser` finds
the same one, or installs it."""

from __future__ import annotations

import os
import shutil

VARIABLE = "ZEDLOG_BROWSER"
"""A browser's path: this one and no other, and if it does not start, the tests fail."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# No name but this machine's own is ever resolved, so that what a page asks of another host cannot succeed either.
ARGUMENTS = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--disable-background-networking",
    "--disable-component-update",
)


def executable() -> str | None:
    """The path of the browser; None if there is none."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, _NAMES)), None)
