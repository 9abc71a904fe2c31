"""Selects the operation for an operator or a functor on arguments of given types.

In: a name of the language and the types of its arguments. Out: the `Operation`, and for terms the type of its result.
Types come from type inference, which refuses everything that does not fit, so a wrong type here is a bug of Zedlog.
Where an argument has no type there is no operation, and there are no rows that would need one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np

from engine.data.codes import Codes
from engine.expressions import floats, numbers, rdf, strings
from engine.expressions.distinct import ranks
from engine.expressions.operation import Floats, Mask, Operation, Result
from engine.expressions.texts import Texts
from engine.language.schema import ColumnType

_Types: TypeAlias = Sequence[ColumnType | None]
_Found: TypeAlias = tuple[Operation[Codes] | None, ColumnType | None]

_SYMBOL, _NUMBER, _FLOAT = ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.FLOAT
# Argument types, result type and function; `cat`, `min`, `max`, `to_string` and those of RDF are seen
# to apart.
_FUNCTORS: dict[str, tuple[tuple[ColumnType, ...], ColumnType, Callable[..., Codes]]] = {
    "ord": ((_SYMBOL,), _NUMBER, strings.ord_),
    "strlen": ((_SYMBOL,), _NUMBER, strings.strlen),
    "substr": ((_SYMBOL, _NUMBER, _NUMBER), _SYMBOL, strings.substr),
    "to_float": ((_SYMBOL,), _FLOAT, strings.to_float),
    "to_number": ((_SYMBOL,), _NUMBER, strings.to_number),
}
_COMPARISONS: dict[str, Callable[..., Mask]] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_WRITE: dict[ColumnType | None, Callable[..., Codes]] = {
    _NUMBER: strings.write_number,
    _FLOAT: strings.write_float,
    ColumnType.BOOL: strings.write_bool,
}
_TESTS: dict[str, Callable[..., Mask]] = {
    "contains": strings.contains,
    "!contains": strings.lacks,
    "match": strings.match,
    "!match": strings.mismatch,
}


def arithmetic(operator: str, types: _Types) -> _Found:
    """A binary or unary operator."""
    type_ = _one(operator, types)
    if None in types:
        return None, type_
    if type_ is _NUMBER:
        table: Mapping[str, Callable[..., Codes]] = numbers.BINARY if len(types) == 2 else numbers.UNARY
        return Operation(operator, partial(_on_codes, table[operator])), type_
    assert type_ is _FLOAT, f"{operator} on values of type {type_}"
    functions: Mapping[str, Callable[..., Floats]] = floats.BINARY if len(types) == 2 else floats.UNARY
    return Operation(operator, partial(_on_floats, functions[operator])), type_


def functor(name: str, types: _Types) -> _Found:
    """A functor. Its result may have a type even if an argument has none: `to_string(x)`."""
    if name in ("min", "max"):
        return _extremum(name, types)
    expected: _Types
    if name == "cat":
        expected, result, function = (_SYMBOL,) * len(types), _SYMBOL, strings.cat
    elif name == "rdf_iri":
        expected, result, function = types, _SYMBOL, partial(rdf.iri, types[1:])
    elif name == "rdf_literal":
        expected, result, function = types, _SYMBOL, partial(rdf.literal, types[0])
    elif name == "to_string":
        expected, result, function = types, _SYMBOL, _WRITE.get(types[0], strings.same)
    else:
        expected, result, function = _FUNCTORS[name]
    if None in types:
        return None, result
    assert tuple(types) == tuple(expected), f"{name} on values of the types {types}"
    return Operation(name, function), result


def condition(operator: str, types: _Types) -> Operation[Mask] | None:
    """A comparison, `contains` or `match`, or the negation of one of the two."""
    type_ = _one(operator, types)
    if None in types:
        return None
    if operator in _COMPARISONS:
        order = _COMPARISONS[operator]
        if type_ is _SYMBOL and operator not in ("=", "!="):
            return Operation(operator, partial(_order_symbols, order))
        if type_ is _FLOAT:
            return Operation(operator, partial(_order_floats, order))
        return Operation(operator, partial(_on_codes, order))
    assert type_ is _SYMBOL, f"{operator} on values of type {type_}"
    return Operation(operator, _TESTS[operator])


def _extremum(name: str, types: _Types) -> _Found:
    type_ = _one(name, types)
    if None in types:
        return None, type_
    if type_ is _SYMBOL:
        return Operation(name, partial(_extreme_symbol, name == "max")), type_
    ufunc = np.minimum if name == "min" else np.maximum
    return Operation(
        name, partial(_on_floats if type_ is _FLOAT else _on_codes, partial(_extreme, ufunc))
    ), type_


def _extreme(ufunc: np.ufunc, *operands: Any) -> Any:
    return reduce(ufunc, operands)


def _extreme_symbol(largest: bool, texts: Texts, *operands: Codes) -> Codes:
    chosen = operands[0]
    for other in operands[1:]:
        left, right = ranks(texts, [chosen, other])
        chosen = np.where(left >= right if largest else left <= right, chosen, other)
    return chosen


def _one(name: str, types: _Types) -> ColumnType | None:
    """The one type of all arguments; None if none of them has one."""
    known = {type_ for type_ in types if type_ is not None}
    assert len(known) <= 1, f"{name} on values of the types {types}"
    return known.pop() if known else None


def _on_codes(function: Callable[..., Result], _: Texts, *operands: Codes) -> Result:
    return function(*operands)


def _order_floats(order: Callable[..., Mask], _: Texts, *operands: Codes) -> Mask:
    return order(*[codes.view(np.float64) for codes in operands])


def _on_floats(function: Callable[..., Floats], _: Texts, *operands: Codes) -> Codes:
    return function(*[codes.view(np.float64) for codes in operands]).view(np.int64)


def _order_symbols(order: Callable[..., Mask], texts: Texts, *operands: Codes) -> Mask:
    return order(*ranks(texts, operands))
