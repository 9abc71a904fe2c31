"""Epoch tokens: `EPOCH-INCARNATION`, for example `7-5f2c09b1`.

A token names a state of one database: "at least as new as this". The incarnation is a random id made once, when the
database is first published, so a token of another database, or of one that has been wiped since, is recognised and
refused, instead of waiting for its epoch.
"""

from __future__ import annotations

import re

from engine.errors import InvalidTokenError, shown

_FORM = re.compile(r"(0|[1-9][0-9]{0,17})-([0-9a-f]{8})", re.ASCII)


def format_token(epoch: int, incarnation: str) -> str:
    """The token of an epoch of the database with this incarnation id (eight hex digits)."""
    return f"{epoch}-{incarnation}"


def parse_token(token: str, incarnation: str) -> int:
    """The epoch that a token names.

    Raises:
        InvalidTokenError: it does not have the form of a token, or belongs to another database.
    """
    match = _FORM.fullmatch(token)
    if match is None:
        raise InvalidTokenError(
            f"{shown(token[:80])} is not an epoch token; use the token of an earlier answer, such as 7-5f2c09b1"
        )
    if match[2] != incarnation:
        raise InvalidTokenError(f"the token {shown(token)} belongs to another database", token=token)
    return int(match[1])
