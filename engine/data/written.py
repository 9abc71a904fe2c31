"""Values as files write them: which texts denote a value of a type, defined once for everything that reads text.

There are two questions. `value_of` says what a text means if its type is known: a number is an optional sign and
digits, a float may also have a point and an exponent, a bool is `true` or `false`, a symbol is any text. White space,
`0x10`, `nan` and infinity are not accepted. `looks_like` says whether a text may be taken for a value of a type that is
not declared. It is narrower: `007` and `+1` count as names, because a number would not be written back in the same way.

Only a text with a fraction or an exponent is rounded: a number has 64 bits, and an integer denotes a float only if the
two are equal. The patterns match the whole text, in Python and in Java (engine/bulk/typed.py); RE2, which pyarrow uses,
has no possessive quantifiers and does not need them (`for_re2`).
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
"""An integer so long that it may not be exactly representable as a float."""
NOT_ZERO: Final = r"^[^eE]*[1-9]"
"""The start of a float that is not zero, however small it is."""
BOOLS: Final = {"true": True, "false": False}

_WRITTEN = {ColumnType.NUMBER: re.compile(NUMBER), ColumnType.FLOAT: re.compile(FLOAT)}
_PLAIN = {ColumnType.NUMBER: re.compile(PLAIN_NUMBER), ColumnType.FLOAT: re.compile(PLAIN_FLOAT)}


class NotAValueError(ValueError):
    """The text is not in the form of a value of the type."""


class MisfitError(NotAValueError):
    """The text has the form of a value of the type, but is too large or too precise for it."""


def for_re2(pattern: str) -> str:
    """A pattern of the whole text for RE2."""
    return f"^(?:{pattern.replace('++', '+').replace('*+', '*').replace('}+', '}')})$"


def value_of(text: str, kind: ColumnType) -> Value:
    """The value of a type that a text denotes.

    Raises:
        NotAValueError: the text does not denote one.
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
    """Whether a text whose type is not declared has the form of a value of `kind`, even if the value would not fit."""
    if kind in _PLAIN:
        return _PLAIN[kind].fullmatch(text) is not None
    return kind is ColumnType.SYMBOL or text in BOOLS
