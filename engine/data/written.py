"""Values as files write them: which texts stand for a value of a type, said once for all that read text.

There are two questions. `value_of` answers what a text means whose type is known: a number is an optional sign and
digits, a float has perhaps a point and an exponent besides, a bool is `true` or `false`, a symbol is any text. White
space, `0x10`, `nan` and infinity are no part of that. `looks_like` answers what a text may be taken for whose type
nobody has said, and is narrower: `007` and `+1` are names, which a number would not give back as written.

Nothing is rounded but what has a fraction or an exponent: a number has 64 bits, and an integer stands for a float only
where the two are equal. The patterns are of the whole text, for Python and for Java (engine/bulk/typed.py); RE2, which
pyarrow has, knows no possessive quantifiers and does not need them (`for_re2`).
"""

from __future__ import annotations

import re
from typing import Final

from engine.data.values import Value
from engine.language.constants import MAX_NUMBER, MIN_NUMBER, read_decimal, shortened
from engine.language.schema import ColumnType

NUMBER: Final = r"[+-]?[0-9]++"
FLOAT: Final = r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
PLAIN_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)"
PLAIN_FLOAT: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
LONG_INTEGER: Final = r"[+-]?[0-9]{16,}+"
"""What may be an integer without a float of its own."""
NOT_ZERO: Final = r"^[^eE]*[1-9]"
"""The start of a float that is not zero, however small it is."""
BOOLS: Final = {"true": True, "false": False}

_WRITTEN = {ColumnType.NUMBER: re.compile(NUMBER), ColumnType.FLOAT: re.compile(FLOAT)}
_PLAIN = {ColumnType.NUMBER: re.compile(PLAIN_NUMBER), ColumnType.FLOAT: re.compile(PLAIN_FLOAT)}


class NotAValueError(ValueError):
    """The text is not written as a value of the type."""


class MisfitError(NotAValueError):
    """The text is written as a value of the type, but is too large for it, or too precise."""


def for_re2(pattern: str) -> str:
    """A pattern of the whole text for RE2."""
    return f"^(?:{pattern.replace('++', '+').replace('*+', '*').replace('}+', '}')})$"


def value_of(text: str, kind: ColumnType) -> Value:
    """The value of a type that a text stands for.

    Raises:
        NotAValueError: there is none.
    """
    if kind is ColumnType.SYMBOL:
        return text
    if kind is ColumnType.BOOL:
        if text in BOOLS:
            return BOOLS[text]
        raise NotAValueError(f"{shortened(text)!r} is not a bool; write true or false")
    if not _WRITTEN[kind].fullmatch(text):
        raise NotAValueError(f"{shortened(text)!r} is not a {kind.value}")
    if kind is ColumnType.NUMBER:
        # Longer ones are out of range, and Python refuses to convert very long ones.
        if len(text) < 1000 and MIN_NUMBER <= int(text) <= MAX_NUMBER:
            return int(text)
        raise MisfitError(f"the number {shortened(text)} does not fit into 64 bits")
    try:
        return read_decimal(text)
    except ValueError as error:
        raise MisfitError(str(error)) from None


def looks_like(text: str, kind: ColumnType) -> bool:
    """Whether a text whose type nobody has said is written as a value of `kind`, also where it does not fit."""
    if kind in _PLAIN:
        return _PLAIN[kind].fullmatch(text) is not None
    return kind is ColumnType.SYMBOL or text in BOOLS
