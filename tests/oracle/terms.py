"""Terms and conditions by their definition, on plain Python values.

In: a term of the parsed tree without aggregates (those are given a value by `stratified`), and a binding. Out: a
value, or `NoValueError` where the language says that there is none: a number outside of 64 bits, a division by
zero, a text that is no number. Written from the language's description with Python's own integers and texts; it
shares no line with the engine's expressions.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote

from engine.language.syntax import (
    BinaryOperation,
    Comparison,
    Constant,
    FunctorCall,
    Term,
    UnaryOperation,
    Variable,
)
from tests.oracle.rules import Value

Binding = Mapping[str, Value]
_COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class NoValueError(Exception):
    """A computation has no result; the whole transaction must be refused."""


class NotModelledError(Exception):
    """The oracle does not know this part of the language."""


def value_of(term: Term, binding: Binding) -> Value:
    match term:
        case Constant():
            return term.value
        case Variable():
            return binding[term.name]
        case UnaryOperation():
            return _unary(term.operator, value_of(term.operand, binding))
        case BinaryOperation():
            return binary(term.operator, value_of(term.left, binding), value_of(term.right, binding))
        case FunctorCall():
            return functor(term.functor, [value_of(argument, binding) for argument in term.arguments])
        case _:
            raise NotModelledError(f"{term} has no value of its own")


def holds(comparison: Comparison, left: Value, right: Value) -> bool:
    name = comparison.operator
    if name in _COMPARE:
        return _COMPARE[name](left, right)
    positive = name.removeprefix("!")
    found = str(left) in str(right) if positive == "contains" else bool(re.fullmatch(str(left), str(right)))
    return found == (positive == name)


def binary(name: str, a: Value, b: Value) -> Value:
    if isinstance(a, str) or isinstance(b, str):
        raise NotModelledError(f"{name} of symbols")
    if isinstance(a, float) or isinstance(b, float):
        return _float(name, float(a), float(b))
    return checked(_integer(name, a, b))


def checked(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise NoValueError(f"{value} is outside of 64 bits")
    return value


def finite(value: float) -> float:
    if not math.isfinite(value):
        raise NoValueError(f"{value} is not finite")
    return value + 0.0


def _integer(name: str, a: int, b: int) -> int:
    if name in ("/", "%"):
        if b == 0:
            raise NoValueError(f"{a} {name} 0")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if name == "/" else a - b * quotient
    if name == "^":
        if b < 0:
            raise NoValueError(f"{a} ^ {b}")
        if abs(a) > 1 and b > 63:
            raise NoValueError(f"{a} ^ {b}")
        return int(a ** (b if abs(a) > 1 else min(b, 2 + b % 2)))
    if name == "bshl":
        shifted = (a << (b & 63)) & (2**64 - 1)
        return shifted - 2**64 if shifted >= 2**63 else shifted
    plain: dict[str, Callable[[int, int], int]] = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "band": operator.and_,
        "bor": operator.or_,
        "bxor": operator.xor,
        "land": lambda x, y: int(x != 0 and y != 0),
        "lor": lambda x, y: int(x != 0 or y != 0),
        "lxor": lambda x, y: int((x != 0) != (y != 0)),
        "bshr": lambda x, y: x >> (y & 63),
    }
    return plain[name](a, b)


def _float(name: str, a: float, b: float) -> float:
    if name == "/" and b == 0:
        raise NoValueError(f"{a} / 0.0")
    plain: dict[str, Callable[[float, float], float]] = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": operator.truediv,
        "^": math.pow,
    }
    try:
        return finite(plain[name](a, b))
    except (OverflowError, ValueError) as error:
        raise NoValueError(f"{a} {name} {b}: {error}") from None


def _unary(name: str, a: Value) -> Value:
    if isinstance(a, str):
        raise NotModelledError(f"{name} of a symbol")
    if isinstance(a, float):
        return finite(-a)
    if name == "lnot":
        return int(a == 0)
    return checked(-a) if name == "-" else ~a


def functor(name: str, arguments: list[Value]) -> Value:
    match name, arguments:
        case "min", _:
            return min(arguments)
        case "max", _:
            return max(arguments)
        case "cat", _:
            return "".join(map(str, arguments))
        case "strlen", [text]:
            return len(str(text))
        case "substr", [text, int(start), int(length)]:
            whole = str(text)
            return "" if start < 0 else whole[start:] if length < 0 else whole[start : start + length]
        case "to_string", [value]:
            return written(value)
        case "to_number", [text]:
            if not re.fullmatch(r"\s*[+-]?[0-9]+", str(text), re.ASCII):
                raise NoValueError(f"{text!r} is no number")
            return checked(int(str(text)))
        case "to_float", [text]:
            if not re.fullmatch(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", str(text), re.ASCII):
                raise NoValueError(f"{text!r} is no float")
            return finite(float(str(text)))
        case "rdf_iri", [template, *parts]:
            return _iri(str(template), parts)
        case "rdf_literal", [value, *suffix]:
            return _literal(value, str(suffix[0]) if suffix else None)
        case _:
            raise NotModelledError(f"the functor {name}")


def _iri(template: str, parts: list[Value]) -> str:
    """As R2RML says for ASCII; beyond that only what tests use: letters stay."""
    pieces = template.split("{}")
    if len(pieces) != len(parts) + 1 or not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", pieces[0]):
        raise NoValueError(template)
    if re.search(r"[\s<>\"{}|^`\\]", "".join(pieces)):
        raise NoValueError(template)
    quoted = ["".join(c if c.isalnum() else quote(c, safe="") for c in _lexical(part)) for part in parts]
    return "<" + "".join(a + b for a, b in zip(pieces, [*quoted, ""], strict=True)) + ">"


def _literal(value: Value, suffix: str | None) -> str:
    from pyoxigraph import Literal, NamedNode

    text = _lexical(value)
    if suffix is None:
        kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "double", str: "string"}
        suffix = f"<http://www.w3.org/2001/XMLSchema#{kinds[type(value)]}>"
    if suffix.startswith("@"):
        return str(Literal(text, language=suffix[1:].lower()))
    return str(Literal(text, datatype=NamedNode(suffix[1:-1])))


def _lexical(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    # The shortest digits that mean this float, moved so that one stands before the point.
    digits = re.sub(r"e.*", "", repr(abs(value))).replace(".", "")
    shortest = digits.strip("0") or "0"
    exponent = 0 if value == 0 else math.floor(math.log10(abs(value)))
    for guess in (exponent, exponent + 1, exponent - 1):
        text = f"{'-' if value < 0 else ''}{shortest[0]}.{shortest[1:] or '0'}E{guess}"
        if float(text) == value:
            return text
    raise NotModelledError(f"{value}")


def written(value: Value) -> str:
    """`to_string`."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:f}" if isinstance(value, float) else str(value)
