"""The sessions of the console: which browser has shown which token.

A page must not keep a token where scripts can read it. So the browser has a cookie that scripts cannot read and that no
other site can make it send; it names a session, and the token stays here, in the memory of this process. The cookie
counts for the console's own addresses only: a call under `/v1` needs its token, wherever it comes from.

Always: a session that was closed, or that nobody has used for `IDLE_SECONDS`, is gone. A restart ends all of them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie
from typing import Final

ROOT: Final = "/console"
_ASSETS: Final = ("/_nicegui/", "/_nicegui_ws/")
IDLE_SECONDS: Final = 12 * 3600.0
MOST: Final = 10_000


def is_console(path: str) -> bool:
    """Whether an address is one of the console's: a page, what a page loads, or its connection."""
    return path == ROOT or path.startswith(("/console/", *_ASSETS))


class Sessions:
    """Tokens by the secret that a browser's cookie holds; only a hash of the secret is kept."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def open(self, token: str) -> str:
        """A new session; its secret is for the cookie."""
        secret = secrets.token_urlsafe(32)
        self._known[_hashed(secret)] = (token, time.monotonic())
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return secret

    def close(self, secret: str) -> None:
        self._known.pop(_hashed(secret), None)

    def token(self, secret: str) -> str | None:
        """The token of a session; None: there is no such session, or there is one no longer."""
        key = _hashed(secret)
        found = self._known.get(key)
        if found is None:
            return None
        token, used = found
        now = time.monotonic()
        if now - used > IDLE_SECONDS:
            del self._known[key]
            return None
        self._known[key] = (token, now)
        self._known.move_to_end(key)
        return token

    def authorization(self, host: bytes | None, cookie: bytes | None) -> bytes | None:
        """The header Authorization that a browser with these headers stands for; None: it has no session."""
        secret = secret_of(host, cookie)
        token = None if secret is None else self.token(secret)
        return None if token is None else b"Bearer " + token.encode("latin-1", "replace")


def cookie_name(host: bytes | None) -> str:
    """Cookies do not distinguish ports, and several services may run on one machine; so the name does."""
    found = re.search(rb":([0-9]{1,5})$", host or b"")
    return "zedlog_console" + ("_" + found[1].decode() if found else "")


def secret_of(host: bytes | None, cookie: bytes | None) -> str | None:
    """The secret in a browser's cookie."""
    if not cookie:
        return None
    try:
        found = SimpleCookie(cookie.decode("latin-1")).get(cookie_name(host))
    except CookieError:
        return None
    return None if found is None else found.value


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
