"""Constants as text: quoted symbols, numbers, floats; read and written.

In: a token of the text, or a value. Out: the value, or its one text; `BadConstantError` if there is none.
Always: what `write_constant` writes reads as the same value. The escapes of a symbol are Souffle's; every other
character stands for itself, except a line break, which must be written `\\n`.
"""

from __future__ import annotations

import math
import re

from engine.errors import shown
from engine.language.schema import ColumnType

_ESCAPES = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_WRITTEN = str.maketrans({char: f"\\{name}" for name, char in _ESCAPES.items() if name != "'"})
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# Far more digits than 64 bits have, far fewer than Python refuses to convert.
_LONGEST_NUMBER = 100

MIN_NUMBER, MAX_NUMBER = -(2**63), 2**63 - 1


class BadConstantError(ValueError):
    """The text is not a constant; `offset` is where in it the fault begins, `length` how long the fault is."""

    def __init__(self, message: str, offset: int, length: int) -> None:
        super().__init__(message)
        self.message, self.offset, self.length = message, offset, length


def read_symbol(quoted: str) -> str:
    """The symbol that a double-quoted literal denotes."""
    if "\\" not in quoted:
        return quoted[1:-1]

    def replace(match: re.Match[str]) -> str:
        char = _ESCAPES.get(match[1])
        if char is None:
            known = " ".join(f"\\{name}" for name in _ESCAPES)
            wrong = match[0] if match[0].isprintable() else f"\\ before {shown(match[1])}"
            raise BadConstantError(
                f"unknown escape {wrong}; the known escapes are {known}", match.start() + 1, 2
            )
        return char

    return _ESCAPE.sub(replace, quoted[1:-1])


def read_number(digits: str) -> int:
    """The value of decimal, `0x` or `0b` digits; it may be 2**63, because a `-` may stand before it."""
    if len(digits) <= _LONGEST_NUMBER:
        value = int(digits, {"0x": 16, "0b": 2}.get(digits[:2].lower(), 10))
        if value <= MAX_NUMBER + 1:
            return value
    raise BadConstantError(f"the number {shortened(digits)} does not fit into 64 bits", 0, len(digits))


def read_float(digits: str) -> float:
    """The value of a decimal fraction, to the nearest 64-bit float."""
    value = float(digits)
    if math.isinf(value):
        raise BadConstantError(f"the float {shortened(digits)} does not fit into 64 bits", 0, len(digits))
    return value


def read_decimal(text: str) -> float:
    """The value of a decimal number in a place where a float is expected, in a file or a parameter.

    text: white space, a sign, digits, a point, an exponent. With a fraction or an exponent the result is the nearest
    float; an integer must fit into 64 bits and be exactly representable as a float.

    Raises:
        ValueError: the text does not denote a float.
    """
    value = float(text)
    digits = text.strip().lstrip("+-")
    if not digits.isdigit():
        if math.isinf(value) or (value == 0 and re.search("[1-9]", re.split("[eE]", digits)[0])):
            raise ValueError(f"the float {shortened(text)} does not fit into 64 bits")
        return value
    # Python refuses to convert very long integers.
    if math.isinf(value) or not MIN_NUMBER <= (number := _integer(text)) <= MAX_NUMBER:
        raise ValueError(f"the number {shortened(text)} does not fit into 64 bits")
    if int(value) != number:
        raise ValueError(f"no float is exactly the integer {text}; write {text}.0 for the nearest one")
    return value


def _integer(text: str) -> int:
    sign = -1 if text.strip().startswith("-") else 1
    return sign * int(text.strip().lstrip("+-").lstrip("0") or "0")


def write_constant(value: str | int | float | bool, type: ColumnType) -> str:
    """The one text of a constant."""
    match type:
        case ColumnType.SYMBOL:
            return f'"{str(value).translate(_WRITTEN)}"'
        case ColumnType.BOOL:
            return "true" if value else "false"
        case ColumnType.NUMBER:
            return str(value)
        case ColumnType.FLOAT:
            return repr(float(value))


def shortened(text: str, limit: int = 40) -> str:
    """The text, or its beginning when it is long; for messages."""
    return text if len(text) <= limit else f"{text[:limit]}..."
