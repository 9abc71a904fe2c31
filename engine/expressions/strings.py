"""Functors and conditions on symbols.

In: columns of codes and the texts they stand for. Out: codes, or truth values for `contains` and `match`.
Always: lengths and positions count characters (Unicode code points), not bytes. `substr` as in Souffle: a position
outside of the text gives "", a length past the end is cut off, a negative length goes to the end.
`to_number` reads decimal digits with an optional sign, `to_float` a decimal fraction with an optional exponent, both
also after white space; anything else is refused, whereas Souffle reads as far as it can. `to_string` writes floats with
six decimals, as Souffle does. `ord` is the symbol's code, which is stable only within one database.

`match` is a full match of a regular expression in the syntax of RE2. Its time is linear in the text, so that no
client's pattern can block the engine, and it supports what Souffle's regular expressions have, except lookahead and
back references. With an invalid pattern both `match` and `!match` are false, as in Souffle; the logger
zedlog.evaluation warns once about each such pattern. Python runs once for each distinct row.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import numpy as np

from engine.data.codes import Codes
from engine.expressions.distinct import Places, at, distinct_rows
from engine.expressions.operation import Mask, NoResult
from engine.expressions.texts import Texts
from engine.language.constants import MAX_NUMBER, MIN_NUMBER, shortened

logger = logging.getLogger("zedlog.evaluation")

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]+)", re.ASCII)
_FLOAT = re.compile(r"[ \t\n\v\f\r]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_MOST_DIGITS = 19
_Value = TypeVar("_Value", int, float)


def cat(texts: Texts, *operands: Codes) -> Codes:
    rows, place = distinct_rows(operands)
    parts = [texts.texts(at(column, rows)) for column in operands]
    return texts.intern_all(["".join(row) for row in zip(*parts, strict=True)])[place]


def strlen(texts: Texts, a: Codes) -> Codes:
    rows, place = distinct_rows([a])
    return np.array([len(text) for text in texts.texts(a[rows])], np.int64)[place]


def substr(texts: Texts, a: Codes, start: Codes, length: Codes) -> Codes:
    rows, place = distinct_rows([a, start, length])
    columns = (texts.texts(at(a, rows)), at(start, rows).tolist(), at(length, rows).tolist())
    return texts.intern_all([_part(*row) for row in zip(*columns, strict=True)])[place]


def _part(text: str, start: int, length: int) -> str:
    if start < 0:
        return ""
    return text[start:] if length < 0 else text[start : start + length]


def ord_(texts: Texts, a: Codes) -> Codes:
    return texts.settle(a)


def to_number(texts: Texts, a: Codes) -> Codes:
    values, place = _read(texts, a, _number)
    return np.array(values, np.int64)[place]


def to_float(texts: Texts, a: Codes) -> Codes:
    values, place = _read(texts, a, _float)
    # -0.0 + 0.0 is 0.0.
    return (np.array(values, np.float64) + 0.0).view(np.int64)[place]


def _read(texts: Texts, a: Codes, read: Callable[[str], _Value]) -> tuple[list[_Value], Places]:
    rows, place = distinct_rows([a])
    values: list[_Value] = []
    bad: dict[int, str] = {}
    for i, text in enumerate(texts.texts(a[rows])):
        try:
            values.append(read(text))
        except ValueError as error:
            bad[i] = str(error)
    refuse_distinct(bad, place)
    return values, place


def refuse_distinct(reasons: dict[int, str], place: Places) -> None:
    """Raise a `NoResult` for the distinct rows that have a reason; each is identified by its first row."""
    if reasons:
        raise NoResult(reasons[min(reasons)], np.isin(place, list(reasons)))


def _number(text: str) -> int:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError("has no value, because the text is not a number")
    value = int(found[1] + found[2]) if len(found[2]) <= _MOST_DIGITS else MAX_NUMBER + 1
    if not MIN_NUMBER <= value <= MAX_NUMBER:
        raise ValueError("has no value, because the number does not fit into 64 bits")
    return value


def _float(text: str) -> float:
    if _FLOAT.fullmatch(text) is None:
        raise ValueError("has no value, because the text is not a float")
    value = float(text)
    if math.isinf(value):
        raise ValueError("has no value, because the float does not fit into 64 bits")
    return value


def write_number(texts: Texts, a: Codes) -> Codes:
    rows, place = distinct_rows([a])
    return texts.intern_all([str(value) for value in a[rows].tolist()])[place]


def write_float(texts: Texts, a: Codes) -> Codes:
    rows, place = distinct_rows([a])
    return texts.intern_all([f"{value:f}" for value in a[rows].view(np.float64).tolist()])[place]


def write_bool(texts: Texts, a: Codes) -> Codes:
    return texts.intern_all(["false", "true"])[a]


def same(_: Texts, a: Codes) -> Codes:
    """`to_string` of a symbol: the symbol itself."""
    return a


def contains(texts: Texts, part: Codes, whole: Codes) -> Mask:
    rows, place = distinct_rows([part, whole])
    pairs = zip(texts.texts(at(part, rows)), texts.texts(at(whole, rows)), strict=True)
    return np.array([a in b for a, b in pairs], np.bool_)[place]


def lacks(texts: Texts, part: Codes, whole: Codes) -> Mask:
    """`!contains`."""
    return ~contains(texts, part, whole)


def match(texts: Texts, pattern: Codes, text: Codes) -> Mask:
    return _matches(texts, pattern, text, True)


def mismatch(texts: Texts, pattern: Codes, text: Codes) -> Mask:
    """`!match`."""
    return _matches(texts, pattern, text, False)


def _matches(texts: Texts, pattern: Codes, text: Codes, wanted: bool) -> Mask:
    """The rows whose text matches the pattern, or those whose text does not; none for an invalid pattern."""
    rows, place = distinct_rows([pattern, text])
    subjects = texts.texts(at(text, rows))
    result = np.zeros(len(rows), np.bool_)
    bad: dict[int, str] = {}
    by_pattern: dict[int, list[int]] = {}
    for i, code in enumerate(at(pattern, rows).tolist()):
        by_pattern.setdefault(code, []).append(i)
    for code, members in by_pattern.items():
        try:
            well_formed = [i for i in members if _is_unicode(subjects[i])]
            bad |= dict.fromkeys(
                set(members) - set(well_formed), "has an argument that is not valid Unicode text"
            )
            found = _full_matches(texts.text(code), [subjects[i] for i in well_formed])
            result[well_formed] = found == wanted
        except ValueError as error:
            _warn_of(texts.text(code), str(error))
    refuse_distinct(bad, place)
    return result[place]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _full_matches(pattern: str, subjects: list[str]) -> Mask:
    # Loaded here and below: half a second that only programs with patterns need to pay.
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        found = pc.match_substring_regex(pa.array(subjects, pa.string()), _anchored(pattern))
    except pa.ArrowInvalid as error:
        # Too large, or an open quotation (\Q) that takes the end of the group in.
        raise _bad_pattern(error) from None
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


@lru_cache(maxsize=1024)
def _anchored(pattern: str) -> str:
    """A checked expression that finds full matches of `pattern`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        # By itself: "a)|(b" would become an expression by being put into parentheses.
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise _bad_pattern(error) from None
    return rf"\A(?:{pattern})\z"


@lru_cache(maxsize=1024)
def _warn_of(pattern: str, reason: str) -> None:
    """Warn about a pattern once, not at each height of a recursion."""
    logger.warning("match(%s, ...) and its negation are both false: %s", shortened(repr(pattern)), reason)


def _bad_pattern(error: Exception) -> ValueError:
    return ValueError(f"the pattern is invalid ({str(error).removeprefix('Invalid regular expression: ')})")
