"""Terms and comparisons of rules, compiled to functions over columns of codes.

In: a typed term or comparison, once; then columns, int64[n] each, for each batch of bindings. Out: a column of codes or
of truth values, or an `EvaluationError` with the values of the first row that has no result; or, by `where_defined`,
the result for those rows that have one.
Always: each row's result depends on that row alone. Without rows nothing is computed: a term of unknown type has no
rows, and an operation without a result (1 / 0) is not an error until a binding needs it. Only results, and the
arguments of `ord`, enter the symbol table (texts.py). Costs a few passes over the columns for each operation on numbers
and floats; an operation on symbols costs one call into Python for each distinct row. Expressions are plain data: they
compare by their text and the types of the variables, and pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import Value, encode_value
from engine.errors import EvaluationError
from engine.expressions import operations
from engine.expressions.operation import Mask, NoResult, Operation, Result
from engine.expressions.texts import Texts
from engine.language.canonical import format_literal, format_term
from engine.language.constants import shortened, write_constant
from engine.language.operators import BINARY, UNARY
from engine.language.schema import ColumnType
from engine.language.syntax import (
    Aggregate,
    BinaryOperation,
    Comparison,
    Constant,
    FunctorCall,
    HeadAggregate,
    Term,
    UnaryOperation,
    Variable,
    Wildcard,
    walk,
)

Types: TypeAlias = Mapping[str, ColumnType | None]
Rows: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Column:
    """A variable."""

    name: str
    type: ColumnType | None


@dataclass(frozen=True, slots=True)
class _Constant:
    """A constant; the code of a symbol comes from the table of each evaluation, that of every other value is kept
    here."""

    text: str | None
    code: int
    type: ColumnType


@dataclass(frozen=True, slots=True)
class _Call:
    """An operation on arguments; None where an argument has no type, which is never evaluated."""

    operation: Operation[Codes] | None
    arguments: tuple[_Node, ...]
    type: ColumnType | None
    term: Term


_Node: TypeAlias = _Column | _Constant | _Call


class _Undefined(Exception):
    """Rows have no value: the error for the first of them, and all of them, bool[n] or bool[1] for all."""

    def __init__(self, error: EvaluationError, rows: Mask) -> None:
        super().__init__(error)
        self.error, self.rows = error, rows


@dataclass(frozen=True, slots=True)
class _Frame:
    """One evaluation: the columns, the texts, and the types with which an error shows a row."""

    columns: Mapping[str, Codes]
    texts: Texts
    types: Types

    def value(self, node: _Node) -> Codes:
        """The codes of a node; those of a constant, or of a term of constants only, have length 1."""
        match node:
            case _Column():
                return self.columns[node.name]
            case _Constant():
                code = node.code if node.text is None else self.texts.intern(node.text)
                return np.array([code], np.int64)
            case _Call():
                assert node.operation is not None, "rows of unknown type"
                return self.apply(node.operation, node.arguments, node.term)

    def apply(
        self, operation: Operation[Result], arguments: Sequence[_Node], source: Term | Comparison
    ) -> Result:
        operands = [self.value(argument) for argument in arguments]
        try:
            return operation(self.texts, *operands)
        except NoResult as fault:
            types = [argument.type for argument in arguments]
            raise _Undefined(
                self._error(operation.name, operands, types, source, fault), fault.rows
            ) from None

    def _error(
        self,
        name: str,
        operands: Sequence[Codes],
        types: Sequence[ColumnType | None],
        source: Term | Comparison,
        fault: NoResult,
    ) -> EvaluationError:
        text = format_literal(source) if isinstance(source, Comparison) else format_term(source)
        row = int(fault.rows.argmax())
        values = [self._at(codes, row, kind) for codes, kind in zip(operands, types, strict=True)]
        binding = {
            variable: self._at(codes, row, self.types[variable])
            for variable, codes in self.columns.items()
            if self.types.get(variable) is not None
        }
        message = f"{_written(name, [_shown(*v) for v in zip(values, types, strict=True)])} {fault.reason}"
        if binding:
            shown = ", ".join(f"{v} = {_shown(value, self.types[v])}" for v, value in binding.items())
            message += f" (in {shortened(text, 120)}, where {shown})"
        return EvaluationError(
            message, operation=name, operands=values, binding=binding, term=text, reason=fault.reason
        )

    def _at(self, codes: Codes, row: int, kind: ColumnType | None) -> Value:
        assert kind is not None, "rows of unknown type"
        code = codes[row] if len(codes) > 1 else codes[0]
        if kind is ColumnType.SYMBOL:
            return self.texts.text(int(code))
        if kind is ColumnType.FLOAT:
            return float(code.view(np.float64))
        return bool(code) if kind is ColumnType.BOOL else int(code)


@dataclass(frozen=True, slots=True)
class Expression:
    """A typed term. `type` is None while nothing has fixed it; then there are no rows to evaluate.

    `variables` are those of the term, each once, in the order of the text.
    """

    term: Term
    type: ColumnType | None
    variables: tuple[str, ...]
    _types: tuple[tuple[str, ColumnType | None], ...] = field(repr=False)
    _root: _Node = field(repr=False, compare=False)

    def evaluate(self, columns: Mapping[str, Codes], n: int, symbols: SymbolTable) -> Codes:
        """The term's value in each of n bindings, int64[n]; for a variable that is its column itself.

        `columns` has a column int64[n] for each of `variables`; it may have more, which errors show.

        Raises:
            EvaluationError: a row has no value.
        """
        return _everywhere(self._value, columns, n, symbols)

    def where_defined(
        self, columns: Mapping[str, Codes], n: int, symbols: SymbolTable
    ) -> tuple[Codes, Rows | None]:
        """The value in each binding that has one, and the indices of these bindings, ascending; None if all have
        one."""
        return _where_defined(self._value, columns, n, symbols)

    def _value(self, columns: Mapping[str, Codes], n: int, symbols: SymbolTable) -> Codes:
        if n == 0:
            return np.empty(0, np.int64)
        texts = Texts(symbols)
        codes = _Frame(columns, texts, dict(self._types)).value(self._root)
        if self.type is ColumnType.SYMBOL:
            codes = texts.settle(codes)
        return codes if len(codes) == n else np.repeat(codes, n)

    def __str__(self) -> str:
        return format_term(self.term)


@dataclass(frozen=True, slots=True)
class Condition:
    """A typed comparison. `variables` are those of both sides, each once, in the order of the text."""

    comparison: Comparison
    variables: tuple[str, ...]
    _types: tuple[tuple[str, ColumnType | None], ...] = field(repr=False)
    _operation: Operation[Mask] | None = field(repr=False, compare=False)
    _sides: tuple[_Node, ...] = field(repr=False, compare=False)

    def evaluate(self, columns: Mapping[str, Codes], n: int, symbols: SymbolTable) -> Mask:
        """Which of n bindings satisfy the condition, bool[n]; `columns` as for `Expression.evaluate`.

        Raises:
            EvaluationError: a row has no value.
        """
        return _everywhere(self._value, columns, n, symbols)

    def where_defined(
        self, columns: Mapping[str, Codes], n: int, symbols: SymbolTable
    ) -> tuple[Mask, Rows | None]:
        """As `Expression.where_defined`."""
        return _where_defined(self._value, columns, n, symbols)

    def _value(self, columns: Mapping[str, Codes], n: int, symbols: SymbolTable) -> Mask:
        if n == 0:
            return np.empty(0, np.bool_)
        assert self._operation is not None, "rows of unknown type"
        frame = _Frame(columns, Texts(symbols), dict(self._types))
        mask = frame.apply(self._operation, self._sides, self.comparison)
        return mask if len(mask) == n else np.repeat(mask, n)

    def __str__(self) -> str:
        return format_literal(self.comparison)


def _everywhere(
    evaluate: Callable[[Mapping[str, Codes], int, SymbolTable], Result],
    columns: Mapping[str, Codes],
    n: int,
    symbols: SymbolTable,
) -> Result:
    """Evaluate; rows without a value are an error."""
    try:
        return evaluate(columns, n, symbols)
    except _Undefined as undefined:
        raise undefined.error from None


def _where_defined(
    evaluate: Callable[[Mapping[str, Codes], int, SymbolTable], Result],
    columns: Mapping[str, Codes],
    n: int,
    symbols: SymbolTable,
) -> tuple[Result, Rows | None]:
    """Evaluate again without the rows that had no value, until all remaining rows have one. A few times suffice,
    because each operation reports all of its rows at once."""
    rows: Rows | None = None
    while True:
        left = n if rows is None else len(rows)
        try:
            return evaluate(columns, left, symbols), rows
        except _Undefined as undefined:
            kept = np.flatnonzero(np.broadcast_to(~undefined.rows, left))
        rows = kept if rows is None else rows[kept]
        columns = {name: column[kept] for name, column in columns.items()}


def compile_term(term: Term, types: Types) -> Expression:
    """Compile a term. `types` are those of `variable_types`; there is no aggregate in the term, and no `_`."""
    root = _compile(term, types)
    return Expression(term, root.type, _variables(term), tuple(types.items()), root)


def compile_condition(comparison: Comparison, types: Types) -> Condition:
    """Compile a comparison, as `compile_term` does a term."""
    sides = (_compile(comparison.left, types), _compile(comparison.right, types))
    operation = operations.condition(comparison.operator, [side.type for side in sides])
    return Condition(comparison, _variables(comparison), tuple(types.items()), operation, sides)


def _compile(term: Term, types: Types) -> _Node:
    match term:
        case Variable():
            assert term.name in types, f"no type for the variable {term.name}"
            return _Column(term.name, types[term.name])
        case Constant(value=str(text)):
            return _Constant(text, 0, term.type)
        case Constant():
            return _Constant(None, encode_value(term.value, SymbolTable()), term.type)
        case BinaryOperation():
            return _call(term, (term.left, term.right), types)
        case UnaryOperation():
            return _call(term, (term.operand,), types)
        case FunctorCall():
            return _call(term, term.arguments, types)
        case Wildcard() | Aggregate() | HeadAggregate():
            raise AssertionError(f"{format_term(term)} has no value of its own in a binding")


def _call(
    term: BinaryOperation | UnaryOperation | FunctorCall, arguments: Sequence[Term], types: Types
) -> _Call:
    nodes = tuple(_compile(argument, types) for argument in arguments)
    types_of = [node.type for node in nodes]
    if isinstance(term, FunctorCall):
        operation, result = operations.functor(term.functor, types_of)
    else:
        operation, result = operations.arithmetic(term.operator, types_of)
    return _Call(operation, nodes, result, term)


def _variables(node: Term | Comparison) -> tuple[str, ...]:
    return tuple(dict.fromkeys(inner.name for inner in walk(node) if isinstance(inner, Variable)))


def _shown(value: Value, kind: ColumnType | None) -> str:
    assert kind is not None
    return shortened(write_constant(value, kind))


def _written(name: str, operands: Sequence[str]) -> str:
    """The operation as it is written, with values in place of its arguments."""
    if name not in BINARY and name not in UNARY:
        return f"{name}({', '.join(operands)})"
    if len(operands) == 2:
        return f"{operands[0]} {name} {operands[1]}"
    return f"{name}({operands[0]})" if name == "-" else f"{name} {operands[0]}"
