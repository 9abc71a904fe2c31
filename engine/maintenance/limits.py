"""Limits as people type them: sizes, times and numbers. Text in, a value out, or a refusal that says what fits."""

from __future__ import annotations

import math

from engine.errors import InvalidRequestError, shown


def parse_size(text: str) -> int:
    """A number of bytes, for example `4GiB`.

    Raises:
        InvalidRequestError: it is not one.
    """
    # Imported here, because only command lines need it.
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise InvalidRequestError(
            f"{shown(text)} is not a size; write 500MiB, 4GiB, or a number of bytes"
        ) from None


def parse_seconds(text: str) -> float | None:
    """A limit of time; `none` is no limit.

    Raises:
        InvalidRequestError: it is neither.
    """
    if text == "none":
        return None
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0 < limit < math.inf:
        raise InvalidRequestError(
            f"{shown(text)} is not a number of seconds above 0; write 'none' for no limit"
        )
    return limit


def parse_whole(text: str, least: int = 1, most: int | None = None) -> int:
    """A whole number in a range.

    Raises:
        InvalidRequestError: it is not one.
    """
    # At most as many digits as Python reads.
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 100 else -1
    if number < least or (most is not None and number > most):
        span = f"from {least} on" if most is None else f"from {least} to {most}"
        raise InvalidRequestError(f"{shown(text)} is not a whole number {span}")
    return number
